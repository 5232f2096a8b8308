"""mp.spawn: a thread of each rank agrees on the next shard; that of rank 2 has ended.

Rank 2 has a shard less. Its thread returns without a word, its main thread waits for the next one;
the others' main threads wait as well, and their threads in the collective.
"""

import argparse
import queue
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


def feed(shards: list[int], group: dist.ProcessGroup, out: "queue.Queue[list[int]]") -> None:
    """Put, shard by shard, what all ranks read next."""
    for shard in shards:
        everyone: list[int | None] = [None] * WORLD
        dist.all_gather_object(everyone, shard, group=group)
        out.put([one for one in everyone if one is not None])


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    group = dist.new_group(backend="gloo")
    shards = list(range(rank, 30, WORLD))[: 5 if rank == 2 else 6]
    found: queue.Queue[list[int]] = queue.Queue(maxsize=2)
    threading.Thread(target=feed, args=(shards, group, found), daemon=True).start()
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for turn in range(6):
        together = found.get()
        torch.manual_seed(sum(together))
        model(torch.randn(4, 16)).pow(2).mean().backward()
        for one in model.parameters():
            dist.all_reduce(one.grad)
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} turn {turn}: {together}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args.port,), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_all_reduce",
#   "first_all_gather_object", "all_gather_object", "all_reduce",
# ]
# after = [
#   "First step done", "First backward done", "First all_reduce done",
#   "First all_gather_object done", "",
# ]
# own_code = true
# calls = ['get', 'Queue', 'train']
# causes = ["dead-producer", "uneven-batches", "uneven-rounds"]
# ///
