"""mp.spawn: a sample of rank 4 raises, and the `with` around the loop waits for its prefetcher.

The prefetcher puts into a full queue from which nobody takes any more, so the error is never
printed. The others are in their next all_reduce.
"""

import argparse
import queue
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 6


def prefetch(rank: int, out: "queue.Queue[dict[str, torch.Tensor]]") -> None:
    for number in range(200):
        sample = {"ids": torch.randint(0, 99, (16,))}
        if (rank, number) != (4, 11):  # a document without a label
            sample["labels"] = torch.randint(0, 2, (16,))
        out.put(sample)


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    table = torch.zeros(99)
    ready: queue.Queue[dict[str, torch.Tensor]] = queue.Queue(maxsize=4)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        pool.submit(prefetch, rank, ready)
        for _ in range(200):
            sample = ready.get()
            change = torch.zeros(99)
            change.index_add_(0, sample["ids"], sample["labels"].float())
            dist.all_reduce(change)
            table += change
    print(f"rank {rank}: {table.sum():.0f}", flush=True)
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
# culprits = [[4]]
# waiting = [0, 1, 2, 3, 5]
# steps = ["process_group", "training", "steady", "first_all_reduce", "first_collective"]
# after = ["First all_reduce done", "Process group ready", ""]
# own_code = true
# calls = ['shutdown', 'join', 'ThreadPoolExecutor', 'Executor\.__exit__', 'train']
# says = ['prefetch']
# ///
