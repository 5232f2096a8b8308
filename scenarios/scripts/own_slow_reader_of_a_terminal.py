"""Healthy and slow: a starter reads a little of the terminal (pty) of its ranks, with long pauses;
rank 0 of three, which prints its log there, mostly waits for room, the others in a Barrier.
"""

import argparse
import multiprocessing
import os
import pty
import time

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()
WORLD = 3


def train(rank: int, meeting) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    for step in range(10):
        if rank == 0:
            for part in range(60):
                print(f"step {step:4} part {part:3} loss {1 / (1 + step + part):8.5f}", flush=True)
        meeting.wait()


def start_ranks() -> None:
    meeting = multiprocessing.Barrier(WORLD)
    ranks = [multiprocessing.Process(target=train, args=(r, meeting)) for r in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


def main() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        start_ranks()
        os._exit(0)
    end = time.monotonic() + args.seconds
    try:
        while os.read(terminal, 2048):
            time.sleep(6 if time.monotonic() < end else 0)
    except OSError:
        pass
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
