"""Rank 1 joins a process whose Queue it has not read; the feeder is in a full pipe.

The other ranks are in a Barrier of processes.
"""

import multiprocessing
import os
import sys
from typing import Any

WORLD = 3


def count(results: Any) -> None:
    results.put(b"0" * 1_000_000)


def count_tokens() -> int:
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    counter = fork.Process(target=count, args=(results,))
    counter.start()
    counter.join()
    return len(results.get())


def train(rank: int, meeting: Any) -> None:
    if rank == 1:
        count_tokens()
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
# waiting = [0, 2]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['join', 'count_tokens', 'wait', 'popen']
# causes = ["pipe-unread", "child-process-stuck"]
# ///
