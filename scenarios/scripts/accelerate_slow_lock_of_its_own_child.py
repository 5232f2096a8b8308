"""Healthy and silent: process 1 of three wants the lock of its export folder (flock), which its own
child has until the export is on a slow disk; the others wait for everyone.
"""

import argparse
import fcntl
import subprocess
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

EXPORT = """
import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("has it", flush=True)
time.sleep(float(sys.argv[2]))
"""


def export_beside(lock: Path, seconds: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", EXPORT, str(lock), str(seconds)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    if accelerator.process_index == 1:
        lock = Path("export.lock")
        child = export_beside(lock, args.seconds)
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            Path("export.txt").write_text("step 0\n")
        child.wait()
    accelerator.wait_for_everyone()
    model = accelerator.prepare(torch.nn.Linear(8, 2))
    accelerator.backward(model(torch.randn(4, 8)).sum())
    accelerator.print("done")
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=3 --mixed_precision=no --dynamo_backend=no train.py --seconds $AMOUNT"""
# outcome = "ok"
# amount = 45.0
# ///
