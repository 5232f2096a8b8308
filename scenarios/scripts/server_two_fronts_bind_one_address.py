"""Two API processes of a server bind the same address for the engine's answers: ZeroMQ lets the
second one take the file of the first away, which waits for the engine's word to begin ever after.

The engine has said "ready" twice, both times to front 1. The supervisor waits for the ready pipe of
front 0, front 1 and the engine for requests.
"""

import argparse
import multiprocessing
import os
import time
from multiprocessing.connection import Connection

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")
ADDRESS = "answers.sock"


def run_engine(fronts: int, asked: Connection) -> None:
    setproctitle.setproctitle("textserve::EngineCore")
    answers = zmq.Context.instance().socket(zmq.PUSH)
    answers.connect(f"ipc://{ADDRESS}")
    for _ in range(fronts):
        answers.send(b"ready")
    while True:
        answers.send(asked.recv().upper())


def run_front(number: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"textserve::ApiServer_{number}")
    answers = zmq.Context.instance().socket(zmq.PULL)
    answers.bind(f"ipc://{ADDRESS}")
    pipe.send("bound")
    wait_for_engine(answers)
    pipe.send("ready")
    while True:
        pipe.send(answers.recv())


def wait_for_engine(answers: "zmq.Socket[bytes]") -> None:
    assert answers.recv() == b"ready"


def supervise(fronts: int) -> None:
    pipes = []
    for number in range(fronts):
        ours, theirs = spawn.Pipe()
        spawn.Process(target=run_front, args=(number, theirs), name=f"ApiServer_{number}").start()
        theirs.close()
        assert ours.recv() == "bound"
        pipes.append(ours)
    _ask, asked = spawn.Pipe()
    spawn.Process(target=run_engine, args=(fronts, asked), name="EngineCore").start()
    asked.close()
    for number, one in enumerate(pipes):
        assert one.recv() == "ready"
        print(f"front {number} is ready, pid {os.getpid()}", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--api-server-count", type=int, default=2)
    supervise(parser.parse_args().api_server_count)

# /// case
# command = "python -m train serve --api-server-count 2"
# needs = ["zmq", "setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['recv', 'wait_for_engine', 'run_front', 'supervise']
# causes = ["address-taken-over", "nobody-sends", "server-process-stuck", "deadlock", "unknown"]
# says = ['ApiServer_0']
# ///
