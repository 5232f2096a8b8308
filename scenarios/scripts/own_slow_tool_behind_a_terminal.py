"""Healthy and silent: rank 1 of three steers a tool by a terminal of its own (pty) and waits for
its prompt, which comes after a long start; the others are in a Barrier.
"""

import argparse
import multiprocessing
import os
import pty
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()
WORLD = 3
TOOL = "import time\ntime.sleep({})\nwhile True:\n    print(len(input('> ')))"


def measure(text: str) -> int:
    keeper, inner = pty.openpty()
    words = [sys.executable, "-c", TOOL.format(args.seconds)]
    tool = subprocess.Popen(words, stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    seen = b""
    while not seen.endswith(b"> "):
        seen += os.read(keeper, 1024)
    tool.terminate()
    return len(text)


def train(rank: int, meeting) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    size = measure("text") if rank == 1 else 4
    meeting.wait()
    print(rank, size, flush=True)


if __name__ == "__main__":
    meeting = multiprocessing.Barrier(WORLD)
    ranks = [multiprocessing.Process(target=train, args=(r, meeting)) for r in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
