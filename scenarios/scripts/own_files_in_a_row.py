"""Every rank looks for the file of the rank before it; rank 1's loader thread died of an exception.

Rank 1 is in Queue.get() for ever; 2 and 3 wait for files that come only after rank 1's, and rank 0
for the last.
"""

import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

WORLD = 4


def wait_for(name: str) -> None:
    while not pathlib.Path(name).exists():
        time.sleep(0.25)


class Loader:
    def __init__(self, shards: list[str]) -> None:
        self.shards, self.rows = shards, queue.Queue[str](maxsize=8)
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self) -> None:
        try:
            for shard in self.shards:
                self.rows.put(pathlib.Path(shard).read_text())
        except OSError as error:
            print(f"loader: {error}", file=sys.stderr)

    def first(self) -> str:
        return self.rows.get()


def train(rank: int, world: int) -> None:
    pathlib.Path(f"shard{rank}").write_text("a row")
    if rank:
        wait_for(f"done{rank - 1}")
    Loader([f"shard{rank}" if rank != 1 else "shard-1"]).first()
    pathlib.Path(f"done{rank}").touch()
    wait_for(f"done{world - 1}")
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), WORLD)
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
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['get', 'first', 'Queue']
# causes = ["dead-producer"]
# ///
