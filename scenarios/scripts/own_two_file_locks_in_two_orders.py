"""Rank 1 locks the index and then the cache, rank 2 the cache and then the index (flock).

Ranks 0 and 3 look for the markers of the two, which come when both files were written.
"""

import argparse
import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

WORLD = 4


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    with Path(f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def append(name: str, text: str) -> None:
    with Path(name).open("a") as file:
        file.write(text + "\n")


def add_to_index(rank: int) -> None:
    with locked("index"):
        append("index.txt", f"shard {rank}")
        time.sleep(1)
        with locked("cache"):  # what is indexed must be in the cache
            append("cache.txt", f"shard {rank}")


def drop_from_cache(rank: int) -> None:
    with locked("cache"):
        time.sleep(1)
        with locked("index"):  # nobody may find what is dropped
            append("index.txt", f"without {rank}")


def train(rank: int) -> None:
    for epoch in range(2):
        if rank == 1:
            add_to_index(rank)
        elif rank == 2:
            drop_from_cache(rank)
        Path(f"ready-{epoch}-{rank}").touch()
        while not all(Path(f"ready-{epoch}-{one}").exists() for one in range(WORLD)):
            time.sleep(0.1)
        print(f"rank {rank} epoch {epoch}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, "train.py"], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1, 2]]
# waiting = [0, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['flock', 'locked', 'add_to_index', 'drop_from_cache']
# causes = ["deadlock", "lock-order", "file-lock-held"]
# ///
