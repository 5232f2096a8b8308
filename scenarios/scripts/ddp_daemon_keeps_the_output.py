"""Rank 1 starts an exporter of metrics in the background and reads what its starter prints.

The starter has ended long ago; the exporter inherited its output and keeps it open, so that
subprocess.run never sees the end of it (python/cpython#76116). The others are in DDP().
"""

import subprocess

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STARTER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9000)"], stdin=subprocess.DEVNULL)
print("exporter started")
"""


def start_exporter() -> str:
    done = subprocess.run(["python", "-c", STARTER], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        print(start_exporter(), flush=True)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    for _ in range(4):
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group", "ddp_wrap", "first_collective", "wrap"]
# after = ["Process group ready"]
# own_code = true
# calls = ['subprocess', 'communicate', 'start_exporter']
# causes = ["pipe-writer-gone", "child-program", "child-process-stuck"]
# ///
