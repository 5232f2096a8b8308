"""A notebook (a kernel of ipykernel, driven by a client) starts two ranks by notebook_launcher; a
thread of the kernel that keeps samples fresh has their lock most of the time, at the forks too.

Rank 1 waits in the lock that nobody of its process has; rank 0 waits for it in
accelerator.wait_for_everyone(). The kernel waits for its ranks, the client for the kernel.
"""

from jupyter_client.manager import KernelManager

CELLS = [
    "from samples import Samples\nsamples = Samples()\nsamples.keep_fresh()",
    "from training import train\n"
    "from accelerate import notebook_launcher\n"
    "notebook_launcher(train, (samples,), num_processes=2, mixed_precision='no')",
]


def show(message: dict[str, dict[str, str]]) -> None:
    text = message["content"].get("text")
    if text:
        print(text, end="", flush=True)


def main() -> None:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready()
    for cell in CELLS:
        client.execute_interactive(cell, output_hook=show)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ipykernel", "jupyter_client", "accelerate"]
# environment = { ACCELERATE_USE_CPU = "true" }
# culprits = [[1]]
# waiting = [0]
# steps = ["script", "process_group", "accelerator"]
# after = ["Accelerator ready", "Process group ready", "torch imported", ""]
# own_code = true
# calls = ['acquire', 'take', '__enter__', 'Samples', 'train']
# causes = ["lock-after-fork", "thread-lost-by-fork", "dead-owner"]
# says = ['lock|Samples']
# [files]
# "samples.py" = '''
# """Samples for a look at them, and for the training."""
# import threading
# import time
#
#
# class Samples:
#     def __init__(self):
#         self.lock, self.rows = threading.Lock(), [0.0]
#
#     def keep_fresh(self):
#         threading.Thread(target=self._refresh, name="samples", daemon=True).start()
#
#     def _refresh(self):
#         while True:
#             with self.lock:
#                 time.sleep(2)  # a slow page of the store
#                 self.rows.append(float(len(self.rows)))
#             time.sleep(0.001)
#
#     def take(self):
#         with self.lock:
#             return list(self.rows)
# '''
# "training.py" = '''
# """A training that a notebook starts."""
# import os
#
#
# def train(samples):
#     from accelerate import Accelerator
#
#     accelerator = Accelerator(cpu=True)
#     print("rank", accelerator.process_index, "of", accelerator.num_processes, flush=True)
#     if not accelerator.is_main_process:
#         print(len(samples.take()), "samples", flush=True)
#     accelerator.wait_for_everyone()
#     if accelerator.is_main_process:
#         print("done", os.getpid(), flush=True)
# '''
# ///
