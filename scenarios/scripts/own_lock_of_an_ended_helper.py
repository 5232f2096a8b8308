"""Rank 1 wants a lock of multiprocessing that a helper took and ended with.

The other ranks are in a Barrier of processes.
"""

import multiprocessing
import os
import sys
from typing import Any

WORLD = 4


def build(lock: Any) -> None:
    lock.acquire()
    os._exit(3)


def shared_index() -> str:
    spawn = multiprocessing.get_context("fork")
    lock = spawn.Lock()
    helper = spawn.Process(target=build, args=(lock,))
    helper.start()
    helper.join()
    with lock:
        return "index"


def train(rank: int, meeting: Any) -> None:
    if rank == 1:
        shared_index()
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
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['shared_index', 'Lock', '__enter__', 'acquire']
# causes = ["dead-owner"]
# ///
