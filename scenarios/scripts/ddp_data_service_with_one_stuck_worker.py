"""Three ranks take batches of a data service with five workers, over a Unix socket; the service's
worker 2 reads its shard from a named pipe that nobody opens.

A thread of the service for each rank asks one worker after another. Ranks 0 and 2 have their batch
and wait in all_reduce for rank 1, whose batch worker 2 was to make.
"""

import argparse
import os
import pickle
import socket
import struct
import time

import torch
import torch.distributed as dist


class BatchClient:
    def __init__(self, path: str, rank: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.socket.connect(path)
                break
            except OSError:
                time.sleep(0.3)
        self.rank = rank

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self.socket.recv(size - len(data))
        return data

    def batch(self, step: int) -> torch.Tensor:
        self.socket.sendall(struct.pack("!II", self.rank, step))
        (size,) = struct.unpack("!I", self.read(4))
        return torch.tensor(pickle.loads(self.read(size)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--service", required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    client = BatchClient(args.service, int(os.environ["RANK"]))
    model = torch.nn.Linear(4, 1)
    for step in range(10):
        loss = model(client.batch(step)).sum()
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh"
# world = "unopened_fifo"
# culprits = [[1], [-1]]
# waiting = [0, 2]
# steps = ["process_group", "first_all_reduce", "training", "first_collective", "steady", "script"]
# after = ["Process group ready", "First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['recv', 'read', 'batch', 'open', 'load_shard']
# causes = ["pipe-no-writer", "server-process-stuck"]
# says = ['/feed']
# [files]
# "train.sh" = """
# python service.py data.sock &
# exec torchrun --standalone --nproc_per_node=3 train.py --service data.sock
# """
# "service.py" = '''
# """Batches made by five workers, in turn."""
# import multiprocessing
# import os
# import pickle
# import socketserver
# import struct
# import sys
# import threading
#
# WORKERS = 5
#
#
# def load_shard(index):
#     if index == 2:
#         with open(os.environ["FIFO"]) as file:
#             return file.read()
#     return "1 2 3 4"
#
#
# def work(index, pipe):
#     while True:
#         step = pipe.recv()
#         pipe.send([[float(word) + step for word in load_shard(index).split()]])
#
#
# class Handler(socketserver.StreamRequestHandler):
#     def handle(self):
#         while asked := self.rfile.read(8):
#             rank, step = struct.unpack("!II", asked)
#             at = (rank + step * 3 + 1) % WORKERS
#             with LOCKS[at]:
#                 PIPES[at].send(step)
#                 body = pickle.dumps(PIPES[at].recv())
#             self.wfile.write(struct.pack("!I", len(body)) + body)
#
#
# class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
#     daemon_threads = True
#
#
# if __name__ == "__main__":
#     LOCKS = [threading.Lock() for _ in range(WORKERS)]
#     PIPES = []
#     for index in range(WORKERS):
#         ours, theirs = multiprocessing.Pipe()
#         name = f"loader-{index}"
#         one = multiprocessing.Process(target=work, args=(index, theirs), name=name, daemon=True)
#         one.start()
#         PIPES.append(ours)
#     Server(sys.argv[1], Handler).serve_forever()
# '''
# ///
