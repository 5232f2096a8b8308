"""Rank 2 of four locks its cache to build it, and a helper locks the same file once more (flock).

The second descriptor is another owner: the rank waits for itself. The others are in a barrier.
"""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    with (folder / "cache.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def vocabulary(folder: Path) -> list[str]:
    with locked(folder):
        kept = folder / "vocabulary.txt"
        if not kept.exists():
            kept.write_text("the\nof\nand\n")
        return kept.read_text().split()


def packed(folder: Path, outdated: bool) -> torch.Tensor:
    if outdated:
        with locked(folder):
            words = vocabulary(folder)
            torch.save(torch.ones(len(words)), folder / "packed.pt")
    words = vocabulary(folder)
    return torch.ones(len(words))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(f"cache-{rank}")
    folder.mkdir(exist_ok=True)
    table = packed(folder, outdated=rank == 2)
    dist.barrier()
    dist.all_reduce(table)
    print(f"rank {rank}: {table.tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "training"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['locked', 'flock', 'vocabulary', 'packed']
# causes = ["self-deadlock", "deadlock", "file-lock-held", "lock-not-to-be-had"]
# ///
