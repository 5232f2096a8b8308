"""Rank 1 of four calls a C library whose callback calls the library again, within its mutex.

The mutex is a plain one and the call lets go of the GIL; the others wait in an all_reduce.
"""

import ctypes
import subprocess
from pathlib import Path

import torch
import torch.distributed as dist

SOURCE = """
#include <pthread.h>
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static long rows = 0;
long add_rows(long count, long (*on_full)(long)) {
    pthread_mutex_lock(&table);
    rows += count;
    if (rows > 40 && on_full) rows -= on_full(rows);
    pthread_mutex_unlock(&table);
    return rows;
}
"""
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)


def library(rank: int) -> ctypes.CDLL:
    source, built = Path(f"table{rank}.c"), Path(f"table{rank}.so").absolute()
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", built, source], check=True)
    return ctypes.CDLL(str(built))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    table = library(rank)

    def flush(rows: int) -> int:
        if rank == 1:  # its last row is kept for the next page
            table.add_rows(1, None)
        return rows

    on_full = CALLBACK(flush)
    for step in range(8):
        total = torch.tensor(float(table.add_rows(12, on_full)))
        dist.all_reduce(total)
        print(f"rank {rank} step {step}: {total.item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["process_group", "training", "steady", "first_all_reduce", "all_reduce"]
# after = ["Process group ready", "First all_reduce done", ""]
# own_code = true
# calls = ['flush', 'add_rows', 'train\.main']
# causes = ["native-call", "self-deadlock", "unknown", "deadlock"]
# ///
