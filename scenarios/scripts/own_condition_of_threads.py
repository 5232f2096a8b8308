"""Rank 1 waits on a Condition for rows of a producer, and that waits for room that nobody makes.

The consumer has set its flag before it waits, and the producer looks at the wrong one: each waits
for the other's notify. The other ranks wait for a marker file of rank 1.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path


class Feed:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.rows: list[int] = []
        self.has_room = False

    def produce(self) -> None:
        with self.changed:
            while not self.has_room:
                self.changed.wait()
            self.rows.append(1)
            self.changed.notify_all()

    def take(self) -> int:
        with self.changed:
            while not self.rows:
                self.changed.wait()
            self.has_room = True
            return self.rows.pop()


def load(rank: int) -> int:
    feed = Feed()
    feed.has_room = rank != 1
    threading.Thread(target=feed.produce, name="producer").start()
    return feed.take()


def train(rank: int, world: int) -> None:
    load(rank)
    Path(f"loaded.{rank}").touch()
    for other in range(world):
        while not Path(f"loaded.{other}").exists():
            time.sleep(0.5)
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=3)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.world)
        return
    ranks = []
    for rank in range(args.world):
        own = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(args.world),
            "LOCAL_RANK": str(rank),
        }
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['Condition\.wait', 'take', 'load']
# causes = ["nobody-notifies", "thread-stuck"]
# ///
