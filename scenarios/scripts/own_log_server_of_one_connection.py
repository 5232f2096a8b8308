"""A thread of rank 2 takes the records of all ranks, one connection after another.

That of rank 0 came first and stays open. What ranks 1, 3 and 4 log lies in their sockets until
these are full; rank 0 and the main thread of rank 2 are in an all_reduce.
"""

import logging
import logging.handlers
import os
import socket
import socketserver
import struct
import threading

import torch
import torch.distributed as dist

COLLECTOR = 2


class Records(socketserver.BaseRequestHandler):
    """Reads the pickled records of one rank until it hangs up."""

    def handle(self) -> None:
        with open("records.bin", "ab") as out, self.request.makefile("rb") as stream:
            while head := stream.read(4):
                out.write(stream.read(struct.unpack(">L", head)[0]))


class Sender(logging.handlers.SocketHandler):
    """Sends records, and loses none of them to a time limit."""

    def makeSocket(self, timeout: float = 0) -> socket.socket:
        return socket.create_connection((self.host, self.port))


def connect_log(rank: int, port: int) -> logging.Logger:
    log = logging.getLogger("train")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(logging.NullHandler() if rank == COLLECTOR else Sender("127.0.0.1", port))
    return log


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    server = None
    if rank == COLLECTOR:
        server = socketserver.TCPServer(("127.0.0.1", 0), Records)
        threading.Thread(target=server.serve_forever, name="records", daemon=True).start()
    told = [server.server_address[1] if server else None]
    dist.broadcast_object_list(told, src=COLLECTOR)
    log = connect_log(rank, told[0])
    if rank == 0:
        log.info("5 ranks, batches of 32")
    dist.barrier()
    weights = torch.zeros(4096)
    for step in range(400):
        gradient = torch.randn(4096)
        dist.all_reduce(gradient)
        weights -= 0.01 * gradient
        log.info("rank %d step %d: %s", rank, step, [round(one, 6) for one in weights.tolist()])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3, 4]
# steps = ["process_group", "training", "steady", "first_all_reduce", "first_collective"]
# after = ["First all_reduce done", "Barrier passed", ""]
# own_code = true
# calls = ['distributed\.\w+', 'Records\.handle', 'readinto', 'send', 'train\.main', "read"]
# ///
