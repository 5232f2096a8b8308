"""Ranks take turns by keys of a TCPStore; rank 3 sets the key of its turn under a wrong number.

Each waits for the key of the one before it, and then for that of the last one. Rank 4 waits for
rank 3, all others, rank 3 too, for rank 4.
"""

import argparse
import datetime
import os
import subprocess
import sys
import time

from torch.distributed import TCPStore

WORLD = 5
LONG = datetime.timedelta(hours=1)


def name_of(rank: int, turn: int) -> str:
    offset = 1 if rank == 3 and turn == 2 else 0  # it has counted a turn that was tried again
    return f"turn/{turn + offset}/rank/{rank}"


def take_turns(store: TCPStore, rank: int) -> None:
    for turn in range(4):
        if rank:
            store.wait([name_of_before(rank, turn)], LONG)
        time.sleep(0.1)  # writes its part of the file
        store.set(name_of(rank, turn), "done")
        print(f"rank {rank} had turn {turn}", flush=True)
        store.wait([f"turn/{turn}/rank/{WORLD - 1}"], LONG)


def name_of_before(rank: int, turn: int) -> str:
    return f"turn/{turn}/rank/{rank - 1}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        store = TCPStore("127.0.0.1", args.port, WORLD, is_master=rank == 0, timeout=LONG)
        take_turns(store, rank)
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[3], [0, 1, 2, 3, 4], []]
# waiting = []
# steps = ["arguments", "import_torch"]
# after = ["Args parsed", "torch imported", ""]
# own_code = true
# calls = ['wait', 'take_turns', 'main']
# causes = ["store-key-missing", "deadlock"]
# ///
