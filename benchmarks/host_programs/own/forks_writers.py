"""A training that writes each checkpoint in a process of its own, forked from the training."""

import os
import threading
import time
from multiprocessing import get_context

import torch
import torch.distributed as dist

torch.set_num_threads(1)


class Journal:
    """What happens, in order; a thread writes it down now and then."""

    def __init__(self, seconds):
        self.lock = threading.Lock()
        self.lines, self.seconds = [], seconds
        threading.Thread(target=self._write_all, daemon=True).start()

    def note(self, line):
        with self.lock:
            self.lines.append(line)

    def _write_all(self):
        while True:
            with self.lock, open(f"/tmp/journal-{os.getpid()}", "a") as file:
                for line in self.lines:
                    file.write(line + "\n")
                self.lines.clear()
                time.sleep(self.seconds)  # as for a disk that is busy
            time.sleep(0.01)


def measure_disk(local_rank):
    """How long the disk of this rank takes, as it was measured when the machine was set up."""
    try:
        with open(f"/tmp/disk-{local_rank}") as file:
            return float(file.read())
    except FileNotFoundError:
        return 0.0


def write_checkpoint(journal, weights, path):
    journal.note(f"writing {path}")
    torch.save(weights, path)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    journal = Journal(measure_disk(os.environ["LOCAL_RANK"]))
    model = torch.nn.Linear(8, 1)
    for step in range(8):
        model.zero_grad()
        model(torch.randn(4, 8)).mean().backward()
        dist.all_reduce(model.weight.grad)
        if step % 4 == 3:
            arguments = (journal, model.state_dict(), f"/tmp/{rank}-{step}.pt")
            writer = get_context("fork").Process(target=write_checkpoint, args=arguments)
            writer.start()
            writer.join()
        dist.barrier()
    dist.destroy_process_group()


main()
