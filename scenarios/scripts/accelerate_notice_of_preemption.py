"""Process 1 alone gets a notice of preemption, and its signal handler waits for everyone.

Nobody else got the signal: the others are in their next backward.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def poll_notice(file: Path) -> None:
    """Ask the node's metadata, here a file, whether this machine is going to be taken away."""
    while not file.exists():
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGUSR1)


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(torch.randn(40_000, 64), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def save_and_leave(number: int, frame: FrameType | None) -> None:
        accelerator.wait_for_everyone()
        accelerator.save(accelerator.unwrap_model(model).state_dict(), "preempted.pt")
        sys.exit(0)

    signal.signal(signal.SIGUSR1, save_and_leave)
    notice = Path(f"notice-{accelerator.process_index}")
    threading.Thread(target=poll_notice, args=(notice,), daemon=True).start()
    for step, batch in enumerate(loader):
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        if step == 20 and accelerator.process_index == 1:
            notice.touch()
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=3 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "barrier",
#   "all_reduce", "first_barrier", "first_all_reduce",
# ]
# after = ["First step done", ""]
# own_code = true
# calls = ['distributed\.\w+', "wait_for_everyone", "backward", "save_and_leave"]
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# ///
