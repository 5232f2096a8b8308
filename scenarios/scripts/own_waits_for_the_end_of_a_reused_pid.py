"""Rank 2 of six waits until the download of an older start has ended, whose pid is in a file.

The container was started anew, and that pid is the launcher's now. Rank 2 asks twice a second.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

PID_FILE = Path("download.pid")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_download() -> None:
    while is_alive(int(PID_FILE.read_text())):
        time.sleep(0.5)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        PID_FILE.write_text(str(os.getppid()))  # as the download of the start before has left it
    dist.barrier()
    if rank == 2:  # its shard is the one that was fetched last
        wait_for_download()
    sizes = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([float(rank)]))
    print(f"rank {rank}: {sum(sizes).item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=6 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3, 4, 5]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "all_gather", "first_all_gather", "barrier",
# ]
# after = ["Process group ready", "First barrier done", "Barrier passed", ""]
# own_code = true
# calls = ['wait_for_download', 'sleep', 'is_alive']
# causes = ["polling-loop", "own-code-sleeps", "retry-loop"]
# ///
