"""torchrun starts four ranks again after rank 2 gave up; the lock file that it made is still there.

In the second attempt rank 2 waits for it to disappear, and the others make the process group.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

SPACE = Path("space")


def build_shard(rank: int) -> torch.Tensor:
    time.sleep(1 if rank == 2 else 4)  # reads; rank 2 has a short list of files
    lock = Path(f"shard-{rank}.lock")
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            time.sleep(0.5)
    if rank == 2 and not SPACE.exists():
        SPACE.touch()  # somebody cleans up before the next attempt
        sys.exit(f"rank {rank}: no space left for its shard")
    shard = torch.full((32,), float(rank))
    lock.unlink()
    return shard


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    shard = build_shard(rank)
    dist.init_process_group("gloo")
    dist.all_reduce(shard)
    print(f"rank {rank}: {shard.sum():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --max-restarts=2 --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["arguments", "import_torch", "process_group"]
# after = ["Args parsed", "torch imported", ""]
# own_code = true
# calls = ['build_shard', 'sleep', 'train\.main']
# causes = ["lock-file-left", "lock-file-without-owner", "polling-loop", "retry-loop"]
# limit = 240
# ///
