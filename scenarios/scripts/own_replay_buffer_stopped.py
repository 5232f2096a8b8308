"""Rank 0 samples from a replay buffer, a process beside the training that was stopped after it had
taken some transitions (Ctrl-Z in its terminal, say); rank 1 waits for the broadcast of the sample.

The buffer serves a multiprocessing manager at a port, and an actor fills it. The actor waits for
the buffer as rank 0 does.
"""

import sys
from multiprocessing.managers import BaseManager

import torch
import torch.distributed as dist


class Buffer(BaseManager):
    pass


Buffer.register("sample")


def connect(port: int) -> Buffer:
    import time

    while True:
        try:
            buffer = Buffer(("127.0.0.1", port), authkey=b"replay")
            buffer.connect()
            return buffer
        except ConnectionRefusedError:
            time.sleep(0.2)


def sample(port: int) -> torch.Tensor:
    while True:
        rows = connect(port).sample()._getvalue()
        if len(rows) >= 1000:
            return torch.tensor(rows)


def main() -> None:
    port = int(sys.argv[1])
    dist.init_process_group("gloo")
    drawn = sample(port) if dist.get_rank() == 0 else torch.zeros(1000)
    dist.broadcast(drawn, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT"
# culprits = [[0], [-1]]
# waiting = [1]
# steps = ["process_group", "first_collective", "training"]
# after = ["Process group ready"]
# own_code = true
# calls = ['sample', 'connect', 'recv', 'answer_challenge', 'add', 'serve_forever']
# causes = ["stopped"]
# says = ['buffer\.py|stopped']
# [files]
# "train.sh" = """
# python buffer.py $1 &
# python actor.py $1 &
# torchrun --standalone --nproc_per_node=2 train.py $1
# """
# "buffer.py" = '''
# """Transitions, by a manager at a port."""
# import os
# import signal
# import sys
# from multiprocessing.managers import BaseManager
#
# ROWS = []
#
#
# def add(row):
#     ROWS.append(row)
#     if len(ROWS) == 40:
#         os.kill(os.getpid(), signal.SIGSTOP)
#
#
# class Buffer(BaseManager):
#     pass
#
#
# Buffer.register("add", add)
# Buffer.register("sample", lambda: ROWS)
# Buffer(("127.0.0.1", int(sys.argv[1])), authkey=b"replay").get_server().serve_forever()
# '''
# "actor.py" = '''
# """It plays, and gives each transition to the buffer."""
# import sys
# import time
# from multiprocessing.managers import BaseManager
#
#
# class Buffer(BaseManager):
#     pass
#
#
# Buffer.register("add")
# buffer = Buffer(("127.0.0.1", int(sys.argv[1])), authkey=b"replay")
# while True:
#     try:
#         buffer.connect()
#         break
#     except ConnectionRefusedError:
#         time.sleep(0.2)
# while True:
#     buffer.add(0.5)
#     time.sleep(0.005)
# '''
# ///
