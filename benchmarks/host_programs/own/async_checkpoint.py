"""A thread of each rank sends checkpoints to a store of objects, while the training goes on."""

import io
import os
import socket
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Uploader:
    def __init__(self, place):
        self.place = place
        self.thread = None

    def save(self, model):
        if self.thread is not None:
            self.thread.join()
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        self.thread = threading.Thread(target=self._send, args=(file.getvalue(),), name="upload")
        self.thread.start()

    def _send(self, content):
        if not self.place:
            return
        host, _, port = self.place.partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(len(content).to_bytes(8, "big") + content)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(1500, 1500))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    uploader = Uploader(os.environ.get("OBJECT_STORE", ""))
    for step in range(40):
        optimizer.zero_grad()
        model(torch.randn(2, 1500)).square().mean().backward()
        optimizer.step()
        if step % 10 == 9:
            uploader.save(model)
    dist.barrier()
    dist.destroy_process_group()


main()
