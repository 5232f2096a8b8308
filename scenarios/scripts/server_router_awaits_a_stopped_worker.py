"""A router deals the parts of a prompt to three workers over ZeroMQ (ROUTER and DEALER) and waits
for as many answers; worker 1 has been stopped (SIGSTOP, as by a batch system that suspends).

Workers 0 and 2 have answered and wait for more.
"""

import argparse
import multiprocessing
import os
import signal

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")
ADDRESS = "ipc://router.sock"


def run_worker(number: int) -> None:
    setproctitle.setproctitle(f"shards::worker{number}")
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, f"worker{number}".encode())
    socket.connect(ADDRESS)
    socket.send(b"ready")
    while True:
        part = socket.recv()
        if number == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        socket.send(part.upper())


class Router:
    def __init__(self, workers: int) -> None:
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.bind(ADDRESS)
        self.processes = [spawn.Process(target=run_worker, args=(n,)) for n in range(workers)]
        for process in self.processes:
            process.start()
        self.identities = [self.socket.recv_multipart()[0] for _ in self.processes]

    def ask(self, parts: list[bytes]) -> list[bytes]:
        for identity, part in zip(self.identities, parts, strict=True):
            self.socket.send_multipart([identity, part])
        return [self.socket.recv_multipart()[1] for _ in parts]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    router = Router(args.workers)
    print(router.ask([f"part {n}".encode() for n in range(args.workers)]), flush=True)
    for process in router.processes:
        process.terminate()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 3"
# needs = ["zmq", "setproctitle"]
# culprits = [[-1], [0]]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['recv', 'ask', 'run_worker', 'kill', '^$']
# causes = ["stopped"]
# says = ['worker1']
# ///
