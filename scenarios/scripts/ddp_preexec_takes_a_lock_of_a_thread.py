"""Rank 2 of four starts a tool with preexec_fn, which writes a journal; a thread was just writing.

Between fork and exec the child wants the journal's lock, which that thread had at the fork.
"""

import os
import subprocess
import threading
import time

import torch
import torch.distributed as dist


class Journal:
    """Lines of all threads, in one file, each of them whole."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a")  # noqa: SIM115
        self._whole = threading.Lock()

    def note(self, *lines: str) -> None:
        with self._whole:
            for line in lines:
                self._file.write(f"{line}\n")
                self._file.flush()
                time.sleep(0.1)  # a share that takes a while


def report(journal: Journal, stop: threading.Event) -> None:
    while not stop.wait(0.01):
        with open("/proc/meminfo") as told:
            journal.note(*told.read().splitlines()[:10])


def pack(journal: Journal, rank: int, step: int) -> int:
    def prepare() -> None:
        os.nice(5)
        journal.note(f"step {step}: a tool starts")

    tool = ["sh", "-c", f"echo {rank * 100 + step}"]
    made = subprocess.run(tool, preexec_fn=prepare, stdout=subprocess.PIPE, check=True)
    return int(made.stdout)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    journal, stop = Journal(f"journal{rank}.txt"), threading.Event()
    reporter = threading.Thread(target=report, args=(journal, stop), name="reporter", daemon=True)
    for step in range(6):
        if step == 3 and rank == 2:
            reporter.start()
            time.sleep(0.2)
        packed = torch.tensor(pack(journal, rank, step))
        dist.all_reduce(packed)
        print(f"rank {rank} step {step}: {packed.item()}", flush=True)
    stop.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "all_reduce", "first_all_reduce",
# ]
# after = ["Process group ready", "First all_reduce done", ""]
# own_code = true
# calls = ['subprocess', 'pack', 'Popen', 'prepare', 'note']
# causes = ["lock-after-fork", "thread-lost-by-fork", "child-process-stuck"]
# ///
