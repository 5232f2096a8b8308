"""Ranks exchange rounds as files of a store; rank 3 writes its second round under another name.

Each waits until it sees the files of all others. The name with which rank 3 writes round 1 has no
leading zero; it has all of round 1 and waits for round 2, the others wait for its round 1.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path


class Store:
    def __init__(self, root: Path, rank: int, world: int) -> None:
        self.root, self.rank, self.world = root, rank, world

    def put(self, key: str, value: bytes) -> None:
        part = self.root / f".{key}.{self.rank}"
        part.write_bytes(value)
        part.rename(self.root / key)

    def get(self, key: str) -> bytes:
        while True:
            try:
                return (self.root / key).read_bytes()
            except FileNotFoundError:
                time.sleep(0.2)

    def exchange(self, number: int, value: bytes) -> list[bytes]:
        digits = 1 if self.rank == 3 and number == 1 else 2
        self.put(f"round{number}-rank{self.rank:0{digits}}", value)
        others = [rank for rank in range(self.world) if rank != self.rank]
        return [self.get(f"round{number}-rank{rank:02}") for rank in others]


def train(store: Store) -> None:
    for number in range(5):
        store.exchange(number, bytes(1000))
    print(f"rank {store.rank} trained", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=4)
    args = parser.parse_args()
    root = Path("store").absolute()
    if "RANK" in os.environ:
        train(Store(root, int(os.environ["RANK"]), args.world))
        return
    root.mkdir()
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
# culprits = [[3], [0, 1, 2, 3], []]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['sleep', 'get', 'exchange']
# causes = ["polling-loop", "other-round", "unknown"]
# ///
