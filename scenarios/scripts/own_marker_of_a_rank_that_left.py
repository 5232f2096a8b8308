"""Rank 1's watchdog ends it with status 0 as its disk is full; the others look for its marker.

Nothing was written, no error came out, and the launcher, which waits for all ranks, stays.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path


class Watchdog(threading.Thread):
    def __init__(self, rank: int) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.rank = rank

    def run(self) -> None:
        while not self.is_full():
            time.sleep(0.5)
        os._exit(0)

    def is_full(self) -> bool:
        return self.rank == 1 and Path("spool.1").exists()


def write_shard(rank: int) -> None:
    Path(f"spool.{rank}").write_bytes(b"0" * 65536)
    time.sleep(2)
    Path(f"shard.{rank}").touch()


def wait_for_shards(world: int) -> list[Path]:
    wanted = [Path(f"shard.{number}") for number in range(world)]
    for one in wanted:
        while not one.exists():
            time.sleep(0.2)
    return wanted


def train(rank: int, world: int) -> None:
    Watchdog(rank).start()
    write_shard(rank)
    print(f"rank {rank} trains on {len(wait_for_shards(world))} shards", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=4)
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
# waiting = [0, 2, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = [".*"]
# causes = ["rank-left"]
# ///
