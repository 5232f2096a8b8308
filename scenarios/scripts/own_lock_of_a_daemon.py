"""Rank 2 wants the flock of a tokenizer's cache, which a daemon inherited and keeps.

The process that took the lock has ended; its daemon sleeps on with the descriptor. The other ranks
wait in select() for rank 2's line in a FIFO.
"""

import fcntl
import os
import select
import subprocess
import sys

WORLD = 4
TAKES = """
import fcntl, os, subprocess
lock = open("cache.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
subprocess.Popen(["sleep", "9000"], pass_fds=[lock.fileno()])
"""


def tokenize() -> None:
    with open("cache.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open("tokens", "w") as file:
            file.write("1 2 3")


def hear(name: str) -> None:
    end = os.open(name, os.O_RDWR)
    select.select([end], [], [])
    print(os.read(end, 16))


def train(rank: int, world: int) -> None:
    if rank == 2:
        tokenize()
        for other in (0, 1, 3):
            with open(f"line{other}", "w") as line:
                line.write("ready")
    else:
        hear(f"line{rank}")
    print(f"rank {rank} trains", flush=True)


if "RANK" not in os.environ:
    subprocess.run([sys.executable, "-c", TAKES], check=True)
    for listener in (0, 1, 3):
        os.mkfifo(f"line{listener}")


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), WORLD)
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['flock', 'tokenize']
# causes = ["file-lock-held"]
# ///
