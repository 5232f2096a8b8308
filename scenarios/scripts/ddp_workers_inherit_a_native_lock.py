"""Rank 2 of four forks its loader's workers while a thread of it is inside a C library's own lock.

The library is like HDF5: one mutex around all of its calls. A worker wants it for its first sample.
"""

import ctypes
import subprocess
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SOURCE = """
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t global = PTHREAD_MUTEX_INITIALIZER;
long read_row(long row) {
    pthread_mutex_lock(&global);
    long found = row * 31 % 97;
    pthread_mutex_unlock(&global);
    return found;
}
void check_file(long rows) {
    pthread_mutex_lock(&global);
    for (long row = 0; row < rows; row++) usleep(1000);
    pthread_mutex_unlock(&global);
}
"""


def library(rank: int) -> ctypes.CDLL:
    source, built = Path(f"rows{rank}.c"), Path(f"rows{rank}.so").absolute()
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", built, source], check=True)
    return ctypes.CDLL(str(built))


class Rows(Dataset[torch.Tensor]):
    def __init__(self, table: ctypes.CDLL) -> None:
        self.table = table

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(self.table.read_row(index)))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    table = library(rank)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    if rank == 2:  # its file was written anew
        threading.Thread(target=table.check_file, args=(6000,), daemon=True).start()
        time.sleep(0.5)
    for step, batch in enumerate(DataLoader(Rows(table), batch_size=8, num_workers=2)):
        model(batch).pow(2).mean().backward()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "data_loader",
# ]
# after = ["DDP ready", ""]
# own_code = true
# calls = ['DataLoader', 'read_row', '__getitem__', 'Queue']
# causes = ["lock-after-fork", "worker-stuck", "thread-lost-by-fork"]
# ///
