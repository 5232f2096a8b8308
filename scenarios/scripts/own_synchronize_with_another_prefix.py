"""Ranks synchronize by torch's elastic store; rank 1 has its vocabulary, and is a name ahead.

All are in synchronize(): three wait for what rank 1 says of the vocabulary, rank 1 for what they
say of the index.
"""

import argparse
import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.utils.store import synchronize

WORLD = 4


class Steps:
    def __init__(self, rank: int, port: int) -> None:
        store = TCPStore(
            "127.0.0.1", port, WORLD, is_master=rank == 0, timeout=datetime.timedelta(hours=1)
        )
        self.rank, self.store = rank, PrefixStore("data/", store)

    def agree(self, name: str, value: str) -> list[str]:
        told = synchronize(
            self.store, value.encode(), self.rank, WORLD, key_prefix=name, timeout=3000
        )
        return [one.decode() for one in told]


def vocabulary(steps: Steps) -> int:
    kept = Path(f"vocabulary-{steps.rank}.txt")
    if kept.exists():
        return int(kept.read_text())
    time.sleep(0.5)
    sizes = steps.agree("vocabulary", str(1000 + steps.rank))
    kept.write_text(str(max(map(int, sizes))))
    return max(map(int, sizes))


def index(steps: Steps, size: int) -> list[str]:
    return steps.agree("index", f"{size}:{steps.rank}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        steps = Steps(int(os.environ["RANK"]), args.port)
        steps.agree("hello", "yes")
        size = vocabulary(steps)
        print(f"rank {steps.rank}: {index(steps, size)}", flush=True)
        return
    Path("vocabulary-1.txt").write_text("1003")  # of a run before, which was ended too early
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# waiting = [0, 2, 3]
# steps = ["arguments", "import_torch"]
# after = ["Args parsed", "torch imported", ""]
# own_code = true
# calls = ['synchronize', 'agree', 'get_all', 'barrier', 'multi_get', 'index', 'vocabulary']
# causes = [
#   "store-key-missing", "rank-conditional-collective", "collective-mismatch", "other-round",
#   "deadlock",
# ]
# ///
