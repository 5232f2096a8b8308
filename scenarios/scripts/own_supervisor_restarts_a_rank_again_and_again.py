"""A supervisor of the user's own starts four ranks and starts each one anew that ends with an
error; rank 2 raises each time, since its shard is missing, and is started again after a pause.

Ranks 0, 1 and 3 wait in the rendezvous for rank 2, which never comes that far. What it raises goes
into a log file of its own.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

WORLD = 4


class Supervisor:
    def __init__(self, port: str, logs: Path) -> None:
        self.port, self.logs = port, logs
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.attempts = dict.fromkeys(range(WORLD), 0)
        logs.mkdir(exist_ok=True)

    def start(self, rank: int) -> None:
        own = {
            "RANK": str(rank),
            "WORLD_SIZE": str(WORLD),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": self.port,
        }
        with (self.logs / f"rank{rank}.log").open("a") as log:
            self.children[rank] = subprocess.Popen(
                [sys.executable, "worker.py"], env={**os.environ, **own}, stdout=log, stderr=log
            )
        self.attempts[rank] += 1

    def run(self) -> None:
        for rank in range(WORLD):
            self.start(rank)
        while self.children:
            for rank, child in list(self.children.items()):
                if child.poll() == 0:
                    del self.children[rank]
                elif child.poll() is not None:
                    time.sleep(min(30, 2 * self.attempts[rank]))
                    self.start(rank)
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    args = parser.parse_args()
    Supervisor(args.port, Path("logs")).run()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "script", "import_torch"]
# after = ["torch imported", "Process group ready", ""]
# own_code = true
# ends = true
# calls = ['load_shard', '^$', 'read_text', 'init_process_group', 'open']
# causes = ["restarted-in-vain", "rank-died", "rank-left", "child-died", "rank-never-started"]
# says = ['FileNotFoundError|status 1|ended|never|again']
# [files]
# "shard0.txt" = "1 2 3"
# "shard1.txt" = "1 2 3"
# "shard3.txt" = "1 2 3"
# "worker.py" = '''
# """A rank: its shard, and then the training."""
# import os
# from pathlib import Path
#
# import torch
# import torch.distributed as dist
#
#
# def load_shard(rank):
#     return [float(word) for word in Path(f"shard{rank}.txt").read_text().split()]
#
#
# def main():
#     shard = load_shard(int(os.environ["RANK"]))
#     dist.init_process_group("gloo")
#     total = torch.tensor(shard).sum()
#     dist.all_reduce(total)
#     print(total, flush=True)
#     dist.destroy_process_group()
#
#
# if __name__ == "__main__":
#     main()
# '''
# ///
