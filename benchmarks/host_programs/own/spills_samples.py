"""Training that keeps the hardest samples of each step: a thread writes them to the local disk."""

import os
import queue
import threading

import torch
import torch.distributed as dist

torch.set_num_threads(1)
FOLDER = "/tmp/spill"


class Spill:
    """Writes samples beside the training, so that a slow disk does not hold it up."""

    def __init__(self):
        self.waiting = queue.Queue(maxsize=4)
        self.count = 0
        os.makedirs(FOLDER, exist_ok=True)
        threading.Thread(target=self.write_all, name="spill", daemon=True).start()

    def write_all(self):
        while True:
            samples = self.waiting.get()
            torch.save(samples, f"{FOLDER}/{self.count}.pt")
            self.count += 1

    def keep(self, samples, losses):
        hardest = losses.topk(16).indices
        self.waiting.put(samples[hardest].clone())


def main():
    dist.init_process_group("gloo")
    spill = Spill()
    model = torch.nn.Linear(1024, 1)
    for _ in range(60):
        samples = torch.randn(64, 1024)
        losses = model(samples).square().squeeze(1)
        spill.keep(samples, losses.detach())
        losses.mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    dist.barrier()
    dist.destroy_process_group()


main()
