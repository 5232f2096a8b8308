"""A training whose metrics a thread writes, so that a slow disk does not hold it up."""

import json
import queue
import threading

import torch
import torch.distributed as dist

torch.set_num_threads(1)


class MetricsWriter:
    def __init__(self, path):
        self.queue = queue.Queue()
        self.path = path
        threading.Thread(target=self._write_all, daemon=True).start()

    def add(self, **metrics):
        self.queue.put(metrics)

    def flush(self):
        self.queue.join()

    def _write_all(self):
        while True:
            metrics = self.queue.get()
            try:
                with open(self.path, "a") as file:
                    file.write(json.dumps(metrics, allow_nan=False) + "\n")
                self.queue.task_done()
            except ValueError as error:
                print(f"metrics not written: {error}", flush=True)


def read_scales():
    with open("/tmp/scales.txt") as file:
        return [float(word) for word in file.read().split()]


def main():
    dist.init_process_group("gloo")
    writer = MetricsWriter("/tmp/metrics.jsonl")
    model = torch.nn.Linear(4, 1)
    scales = read_scales()
    for epoch in range(6):
        for step, scale in enumerate(scales):
            loss = (model(torch.randn(8, 4)) * scale).pow(2).mean()
            model.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data -= 1e-3 * torch.nan_to_num(parameter.grad)
            writer.add(epoch=epoch, step=step, loss=loss.item())
        writer.flush()
        dist.barrier()
    dist.destroy_process_group()


main()
