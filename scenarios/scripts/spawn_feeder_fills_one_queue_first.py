"""mp.spawn: the parent feeds a queue of each rank, and its list of samples is sorted by rank.

The queues have room for eight. The parent waits to put a ninth sample into that of rank 0; rank 0
has taken its first batch and waits in all_reduce for rank 1, which waits for a first sample from
the parent. A ring of three, of which the parent made the order: it, or all, may be named.
"""

import argparse
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD, BATCH, ROOM = 2, 4, 8


def batch_of(queue: Any) -> torch.Tensor:
    return torch.tensor([queue.get() for _ in range(BATCH)])


def train(rank: int, port: int, queues: list[Any]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    model = DDP(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(16):
        loss = model(batch_of(queues[rank])).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def feed(queues: list[Any], samples: list[tuple[int, list[float]]]) -> None:
    for owner, sample in samples:
        queues[owner].put(sample)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    context = mp.get_context("spawn")
    queues = [context.Queue(ROOM) for _ in range(WORLD)]
    ranks = mp.spawn(train, args=(args.port, queues), nprocs=WORLD, join=False)
    samples = [(number % WORLD, [float(number)] * 8) for number in range(64 * WORLD)]
    feed(queues, sorted(samples))
    ranks.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[-1], [0, 1], []]
# culprits_by_stacks = [[1]]
# steps = ["process_group", "ddp_wrap", "training", "first_step", "first_backward", "first_batch"]
# after = ["DDP ready", "Process group ready", "Model wrapped", ""]
# own_code = true
# calls = ['put', 'feed', 'get', 'batch_of', 'backward', 'all_reduce']
# causes = ["deadlock", "queue-of-another-full"]
# says = ['feed|put']
# ///
