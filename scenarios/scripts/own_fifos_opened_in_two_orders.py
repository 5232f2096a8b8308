"""Ranks 1 and 3 of five open two named pipes between them: each opens the one that it reads first.

To open one for reading waits for its writer, and that is the other rank. The others poll.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

WORLD = 5
parser = argparse.ArgumentParser()
parser.add_argument("--folder", type=Path, default=Path("pipes"))
args = parser.parse_args()
PARTNERS = {1: 3, 3: 1}


def pipe(source: int, target: int) -> Path:
    path = args.folder / f"{source}-to-{target}"
    args.folder.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path)
    return path


def swap_seeds(rank: int, partner: int) -> int:
    with pipe(partner, rank).open() as incoming, pipe(rank, partner).open("w") as outgoing:
        outgoing.write(f"{rank * 17}\n")
        outgoing.flush()
        return int(incoming.readline())


def train(rank: int) -> None:
    if rank in PARTNERS:
        swap_seeds(rank, PARTNERS[rank])
    (args.folder.parent / f"ready-{rank}").touch()
    while not all((args.folder.parent / f"ready-{one}").exists() for one in range(WORLD)):
        time.sleep(0.3)
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1, 3]]
# waiting = [0, 2, 4]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['swap_seeds', 'open']
# causes = ["deadlock", "pipe-no-writer"]
# ///
