"""Healthy and slow: a notebook's kernel whose first cell trains with two ranks, whose user then
reads for long and runs another cell with two ranks.

Between the cells the kernel waits for what to run next, and the client of it sleeps.
"""

import sys
import time

from jupyter_client.manager import KernelManager

CELL = (
    "from training import train\n"
    "from accelerate import notebook_launcher\n"
    "notebook_launcher(train, num_processes=2, mixed_precision='no')"
)


def show(message: dict[str, dict[str, str]]) -> None:
    text = message["content"].get("text")
    if text:
        print(text, end="", flush=True)


def main(seconds: float) -> None:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready()
    client.execute_interactive(CELL, output_hook=show)
    time.sleep(seconds)
    client.execute_interactive(CELL, output_hook=show)
    client.stop_channels()
    manager.shutdown_kernel()


if __name__ == "__main__":
    main(float(sys.argv[1]))

# /// case
# command = "python train.py $AMOUNT"
# needs = ["ipykernel", "jupyter_client", "accelerate"]
# environment = { ACCELERATE_USE_CPU = "true" }
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# [files]
# "training.py" = '''
# """A training that a notebook starts."""
#
#
# def train():
#     from accelerate import Accelerator
#
#     accelerator = Accelerator(cpu=True)
#     print("rank", accelerator.process_index, "of", accelerator.num_processes, flush=True)
#     accelerator.wait_for_everyone()
# '''
# ///
