"""Ranks count themselves in a TCPStore and look at the counter; rank 2 has resumed an epoch later.

It counts itself under another name, so neither counter is ever full.
"""

import argparse
import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

from torch.distributed import TCPStore

WORLD = 4


def resumed_epoch(rank: int) -> int:
    newest = sorted(Path(f"checkpoints/rank{rank}").glob("epoch-*"))
    return int(newest[-1].name.removeprefix("epoch-")) if newest else 0


def meet(store: TCPStore, epoch: int) -> None:
    arrived = store.add(f"epoch-{epoch}/arrived", 1)
    while arrived < WORLD:
        time.sleep(0.3)
        arrived = store.add(f"epoch-{epoch}/arrived", 0)


def train(rank: int, port: int) -> None:
    store = TCPStore(
        "127.0.0.1", port, WORLD, is_master=rank == 0, timeout=datetime.timedelta(minutes=2)
    )
    for epoch in range(resumed_epoch(rank) + 1, 6):
        meet(store, epoch)
        print(f"rank {rank} is in epoch {epoch}", flush=True)
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.port)
        return
    for rank in range(WORLD):
        for epoch in range(1, 4 if rank == 2 else 3):
            Path(f"checkpoints/rank{rank}/epoch-{epoch}").mkdir(parents=True, exist_ok=True)
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# steps = ["arguments", "import_torch"]
# after = ["Args parsed", "torch imported", ""]
# own_code = true
# calls = ['sleep', 'meet', 'add']
# causes = ["polling-loop", "other-round"]
# limit = 300
# ///
