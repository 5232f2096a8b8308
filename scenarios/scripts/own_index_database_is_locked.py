"""Rank 1's indexer has begun a transaction in SQLite and waits for more rows; rank 1 writes into
the same database, and waits for the lock. The others are in a barrier of gloo.
"""

import argparse
import os
import sqlite3
import subprocess
import sys

import torch
import torch.distributed as dist

INDEXER = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("BEGIN IMMEDIATE")
print("ready", flush=True)
for line in sys.stdin:
    base.execute("INSERT INTO samples VALUES (?)", (line.strip(),))
base.execute("COMMIT")
"""


def index_shard(rank: int, names: list[str]) -> int:
    path = f"index-{rank}.db"
    base = sqlite3.connect(path, timeout=36_000)
    base.execute("CREATE TABLE IF NOT EXISTS samples (name TEXT)")
    base.commit()
    if rank != 1:
        base.executemany("INSERT INTO samples VALUES (?)", [(name,) for name in names])
        base.commit()
        return len(names)
    indexer = subprocess.Popen(
        [sys.executable, "-c", INDEXER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert indexer.stdin is not None
    assert indexer.stdout is not None
    indexer.stdout.readline()
    indexer.stdin.writelines(name + "\n" for name in names)
    indexer.stdin.flush()
    base.execute("INSERT INTO samples VALUES ('header')")
    base.commit()
    indexer.stdin.close()
    return len(names) + indexer.wait()


def train(rank: int, world: int, port: int) -> None:
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    count = torch.tensor(index_shard(rank, [f"{rank}-{number}" for number in range(100)]))
    dist.barrier()
    dist.all_reduce(count)
    print(f"rank {rank}: {count} samples", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--world", type=int, default=3)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.world, args.port)
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
# command = "python train.py --port $PORT"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['index_shard', 'execute', 'sqlite']
# causes = ["deadlock", "file-lock-held"]
# limit = 300
# ///
