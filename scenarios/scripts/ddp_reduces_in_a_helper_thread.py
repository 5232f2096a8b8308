"""Each of four ranks reduces its statistics in a helper thread, and waits for its future.

That of rank 1 reads the file of its shard's statistics first: a named pipe that nobody writes.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist


def read_statistics(path: Path, rank: int) -> list[float]:
    if rank != 1:
        return [1.0, 2.0, float(rank)]
    return [float(word) for word in path.read_text().split()]


def share_statistics(path: Path, rank: int) -> torch.Tensor:
    own = torch.tensor(read_statistics(path, rank))
    dist.all_reduce(own)
    return own / dist.get_world_size()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--statistics", type=Path, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    helper = ThreadPoolExecutor(1, thread_name_prefix="statistics")
    model = torch.nn.Linear(16, 3)
    for epoch in range(3):
        pending = helper.submit(share_statistics, args.statistics, rank)
        model(torch.randn(64, 16)).pow(2).mean().backward()
        mean = pending.result()
        print(f"epoch {epoch}: {mean.tolist()}", flush=True)
    dist.destroy_process_group()


main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --statistics $FIFO"
# world = "unopened_fifo"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["all_reduce", "first_all_reduce", "process_group", "training"]
# after = ["Process group ready", "Arguments parsed", "Args parsed", "First backward done"]
# own_code = true
# calls = ["open", "read_text", "read_statistics", "result"]
# causes = ["pipe-no-writer"]
# ///
