"""A debugger has attached to rank 2 of four while it reads its data, and has not let it go on: the
kernel keeps the rank stopped for the one that traces it. The others wait for it.
"""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DEBUGGER = """\
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, int(sys.argv[1]), None, None):  # PTRACE_ATTACH
    sys.exit(f"errno {ctypes.get_errno()}")
time.sleep(100_000)
"""


def read_rows(rows: int) -> torch.Tensor:
    table = torch.zeros(rows, 8)
    for row in range(rows):
        table[row] = row
        time.sleep(0.01)
    return table


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    debugger = None
    if dist.get_rank() == 2:
        debugger = subprocess.Popen([sys.executable, "-c", DEBUGGER, str(os.getpid())])
    table = read_rows(1000)
    for _ in range(5):
        model(table).sum().backward()
    if debugger is not None:
        debugger.kill()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["script", "training", "first_batch", "first_step", "first_forward", "first_backward"]
# after = ["DDP ready", ""]
# own_code = true
# calls = ['.*']
# causes = ["stopped-by-debugger"]
# ///
