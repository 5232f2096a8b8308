"""Process 2 builds the cache under its file lock, and waits for everyone before it lets go.

The others want the same lock to read the cache, and would wait for everyone after that. Process 2
is the one that meets the others with the lock in its hand; that all three wait in a ring is right
as well.
"""

import time
from pathlib import Path

import torch
from accelerate import Accelerator
from filelock import FileLock

CACHE = Path("cache.pt")
LOCK = FileLock("cache.pt.lock")


def build(accelerator: Accelerator) -> torch.Tensor:
    with LOCK:
        table = torch.randn(128, 16)
        torch.save(table, CACHE)
        accelerator.wait_for_everyone()
    return table


def read(accelerator: Accelerator) -> torch.Tensor:
    time.sleep(3)  # a tokenizer is loaded first
    with LOCK:
        table: torch.Tensor = torch.load(CACHE)
    accelerator.wait_for_everyone()
    return table


def main() -> None:
    accelerator = Accelerator(cpu=True)
    accelerator.wait_for_everyone()
    builds = accelerator.process_index == accelerator.num_processes - 1
    table = build(accelerator) if builds else read(accelerator)
    model = accelerator.prepare(torch.nn.Linear(16, 1))
    for rows in table.split(16):
        accelerator.backward(model(rows).pow(2).mean())
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=3 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[2], [0, 1, 2]]
# steps = [
#   "process_group", "accelerator", "barrier", "first_barrier", "first_collective", "training",
# ]
# after = ["Barrier passed", "Accelerator configured", ""]
# own_code = true
# calls = ['wait_for_everyone', 'distributed\.barrier', '[Ll]ock', 'train\.(build|read)']
# causes = ["deadlock", "file-lock-held"]
# ///
