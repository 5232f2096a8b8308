"""Rank 2 waits for a filter that reads until its input ends, and holds the input open itself.

Popen.wait() is called before stdin is closed. The other ranks are in a Barrier of processes.
"""

import multiprocessing
import os
import subprocess
import sys
from typing import Any

WORLD = 4


class Vocabulary:
    def __init__(self, words: list[str]) -> None:
        self.words = words

    def sorted_by_program(self) -> list[str]:
        with open("vocabulary.txt", "w") as target:
            filter_ = subprocess.Popen(["sort"], stdin=subprocess.PIPE, stdout=target, text=True)
            assert filter_.stdin is not None
            filter_.stdin.write("\n".join(self.words))
            filter_.stdin.flush()
            filter_.wait()
        with open("vocabulary.txt") as file:
            return file.read().splitlines()


def train(rank: int, meeting: Any) -> None:
    words = ["step", "loss", "rank"]
    if rank == 2:
        words = Vocabulary(words).sorted_by_program()
    meeting.wait()
    print(f"rank {rank} trains with {len(words)} words", flush=True)


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
# calls = ['wait', 'sorted_by_program', 'sort']
# causes = ["child-process-stuck", "child-program", "deadlock"]
# ///
