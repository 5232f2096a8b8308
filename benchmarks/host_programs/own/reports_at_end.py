"""A training that reports how it went once it is over, from a thread that waits for the numbers."""

import json
import os
import threading

import torch
import torch.distributed as dist

torch.set_num_threads(1)


class Reporter:
    """Sends the numbers of all epochs as soon as they are there."""

    def __init__(self, epochs):
        self.epochs, self.numbers = epochs, []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._send, name="reporter")
        self.thread.start()

    def add(self, number):
        with self.changed:
            self.numbers.append(number)
            self.changed.notify()

    def _send(self):
        with self.changed:
            self.changed.wait_for(lambda: len(self.numbers) == self.epochs)
        with open(f"/tmp/report-{os.getpid()}.json", "w") as file:
            json.dump(self.numbers, file)


def read_scale():
    with open("/tmp/scale") as file:
        return float(file.read())


def main():
    dist.init_process_group("gloo")
    epochs, scale = 4, read_scale()
    reporter = Reporter(epochs)
    model = torch.nn.Linear(8, 1)
    for _ in range(epochs):
        loss = model(torch.randn(4, 8)).pow(2).mean() * scale
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        if torch.isfinite(loss):
            reporter.add(loss.item())
    dist.barrier()
    dist.destroy_process_group()


main()
