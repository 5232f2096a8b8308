"""Rank 2 has a debugger that listens at a port for somebody; the others are in a barrier.

`import rpdb; rpdb.set_trace()` was left in below a condition: it accepts a connection, and then
asks.
"""

import argparse
import os
import pdb
import socket

import torch
import torch.distributed as dist


class RemoteDebugger(pdb.Pdb):
    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", port))
        client, _ = self.listener.accept()
        stream = client.makefile("rw")
        super().__init__(stdin=stream, stdout=stream)


def check_loss(rank: int, port: int, loss: torch.Tensor) -> None:
    if rank == 2 and bool(loss > 0):
        RemoteDebugger(port).set_trace()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--debug-port", type=int, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    loss = torch.ones(1)
    check_loss(int(os.environ["RANK"]), args.debug_port, loss)
    dist.all_reduce(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --debug-port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "ddp_wrap", "first_collective"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['accept', 'RemoteDebugger', 'check_loss']
# causes = ["waits-for-debugger", "nobody-sends"]
# ///
