"""Slow, no hang: a token goes round five ranks by named pipes, and each works with it for a while.

Who has no token is in open() of a pipe that nobody has opened to write yet. Rank 3's work is a
child that unpacks and says nothing.
"""

import argparse
import os
import subprocess
import sys

WORLD = 5
CHILD = (
    "import sys, time, zlib\n"
    "end = time.monotonic() + float(sys.argv[1])\n"
    "while time.monotonic() < end:\n"
    "    zlib.decompress(zlib.compress(bytes(10**6), 6))\n"
)


def work(rank: int, seconds: float) -> None:
    part = seconds if rank == 3 else 1.0
    subprocess.run([sys.executable, "-S", "-c", CHILD, str(part)], check=True)


def train(rank: int, seconds: float) -> None:
    for turn in range(2):
        if rank or turn:
            with open(f"token-{rank}.fifo") as pipe:
                assert pipe.read() == str(turn if rank else turn - 1)
        work(rank, seconds if turn else 1.0)
        print(f"rank {rank} turn {turn}", flush=True)
        if (rank + 1) % WORLD or turn == 0:
            with open(f"token-{(rank + 1) % WORLD}.fifo", "w") as pipe:
                pipe.write(str(turn))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.seconds)
        return
    for rank in range(WORLD):
        os.mkfifo(f"token-{rank}.fifo")
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
