"""Rank 1 asks its worker over pipes and forgets to flush; the others are in a barrier of gloo.

The request stays in the buffer of the rank, which reads the answer, and the worker reads its
stdin.
"""

import argparse
import os
import subprocess
import sys

import torch.distributed as dist

WORKER = """
import sys
for line in sys.stdin:
    print(line.upper(), end="", flush=True)
"""


def tokenize(rank: int, text: str) -> str:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(text + "\n")
    if rank != 1:
        worker.stdin.flush()
    answer = worker.stdout.readline()
    worker.stdin.close()
    worker.wait()
    return answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.parse_args()
    dist.init_process_group("gloo")
    tokenize(int(os.environ["RANK"]), "once upon a time")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group", "ddp_wrap", "first_collective"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['readline', 'tokenize', 'os\.read$']
# causes = ["deadlock"]
# ///
