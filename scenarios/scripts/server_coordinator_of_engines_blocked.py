"""A server with data parallelism: engine 0 works on a request and meets engine 1 after each step;
engine 1 waits for the coordinator's word, which writes its statistics into a full pipe.

The coordinator's child, which was to read them, does something else. Engine 0 waits for engine 1
in a collective, engine 1 for the coordinator, and the front for engine 0: the coordinator stands
still.
"""

import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection

import setproctitle


def engine(number: int, port: int, words: Connection, answers: Connection) -> None:
    setproctitle.setproctitle(f"MyServer::Engine_DP{number}")
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2
    )
    answers.send("ready")
    while True:
        words.recv()
        for _ in range(3):
            unfinished = torch.ones(1)
            dist.all_reduce(unfinished)
        answers.send("text")


def coordinate(asked: Connection, engines: list[Connection]) -> None:
    setproctitle.setproctitle("MyServer::Coordinator")
    statistics = subprocess.Popen([sys.executable, "counts.py"], stdin=subprocess.PIPE)
    assert statistics.stdin is not None
    while True:
        request = asked.recv()
        engines[0].send(request)
        os.write(statistics.stdin.fileno(), b"x" * 200_000)
        engines[1].send(request)


def main(port: int) -> None:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    answers = [context.Pipe() for _ in range(2)]
    asks, asked = context.Pipe()
    for number in range(2):
        own = (number, port, pipes[number][1], answers[number][1])
        context.Process(target=engine, args=own).start()
    context.Process(target=coordinate, args=(asked, [one for one, _ in pipes])).start()
    for ours, _ in answers:
        ours.recv()
    print("ready", flush=True)
    asks.send("once upon a time")
    print(answers[0][0].recv(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))

# /// case
# command = "python train.py $PORT"
# needs = ["setproctitle"]
# culprits = [[-1]]
# waiting = [0, 1]
# steps = ["script", "import_torch"]
# after = ["", "torch imported", "Process group ready"]
# own_code = true
# calls = ['write', 'coordinate']
# causes = ["pipe-unread"]
# says = ['Coordinator']
# [files]
# "counts.py" = '''
# """It was to read what it is told, and waits for a time to do so."""
# import threading
#
# threading.Event().wait()
# '''
# ///
