"""A trainer starts its data service, reads from the service's output until it is up, and reads no
more; the service logs each batch that it serves, and its pipe is full after some hundred.

The trainer waits in recv() of a socket for the next batch; the service in write() of its log, for
the trainer to read. The pipe that the trainer does not read is the fault.
"""

import socket
import struct
import subprocess
import sys

import torch


class DataService:
    def __init__(self, path: str) -> None:
        words = [sys.executable, "-u", "service.py", path]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if "ready" in line:
                break
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.stream = self.socket.makefile("rb")

    def next_batch(self) -> torch.Tensor:
        self.socket.sendall(b"next\n")
        (length,) = struct.unpack("!I", self.stream.read(4))
        return torch.frombuffer(bytearray(self.stream.read(length)), dtype=torch.float32)


def main() -> None:
    service = DataService("batches.sock")
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(5000):
        loss = model(service.next_batch().view(-1, 64)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script", "training", "steady", "import_torch"]
# after = ["torch imported", "First steps trained", "First step done", ""]
# own_code = true
# calls = ['next_batch', 'read', 'recv', 'write', 'print', 'log', 'emit']
# causes = ["pipe-unread", "deadlock"]
# says = ['service\.py', 'pipe']
# [files]
# "service.py" = '''
# """Batches over a socket, and a line for each in the log."""
# import logging
# import socket
# import struct
# import sys
#
# logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
# with socket.socket(socket.AF_UNIX) as listener:
#     listener.bind(sys.argv[1])
#     listener.listen(1)
#     logging.info("ready")
#     reader, _ = listener.accept()
#     count = 0
#     with reader, reader.makefile("rb") as lines:
#         for _ in lines:
#             body = struct.pack("256f", *(float((count + one) % 7) for one in range(256)))
#             reader.sendall(struct.pack("!I", len(body)) + body)
#             count += 1
#             logging.info("served batch %d of %d bytes to %s", count, len(body), sys.argv[1])
# '''
# ///
