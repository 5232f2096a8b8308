"""Rank 2 reads the output of a helper that has stopped itself; the others are in a Barrier."""

import multiprocessing
import os
import subprocess
import sys
from typing import Any

WORLD = 4


def vocabulary() -> bytes:
    with subprocess.Popen(["sh", "-c", "kill -STOP $$; echo words"], stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        return one.stdout.readline()


def train(rank: int, meeting: Any) -> None:
    if rank == 2:
        vocabulary()
    meeting.wait()
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    meeting = spawn.Barrier(WORLD)
    ranks = []
    for rank in range(WORLD):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
        ranks.append(spawn.Process(target=train, args=(rank, meeting)))
        ranks[-1].start()
    for one in ranks:
        one.join()
    sys.exit(max(one.exitcode or 0 for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['vocabulary', 'readline']
# causes = ["stopped"]
# ///
