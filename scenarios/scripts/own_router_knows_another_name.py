"""ZeroMQ: the dispatcher, rank 0, answers each rank by its name, and rank 2 of four has told it one
with a blank at its end, but is asked for without: its answers are dropped without a word.
"""

import os
import subprocess
import sys

import zmq

WORLD = 4
PORT = os.environ["PORT"]


class Dispatcher:
    def __init__(self) -> None:
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.bind(f"tcp://127.0.0.1:{PORT}")

    def serve(self) -> None:
        waiting, rounds = set(), 0
        while rounds < 5:
            name, _, _ = self.socket.recv_multipart()
            waiting.add(name.strip())
            if len(waiting) == WORLD - 1:
                for one in sorted(waiting):
                    self.socket.send_multipart([one, b"", str(rounds).encode()])
                waiting.clear()
                rounds += 1


def train(rank: int) -> None:
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.identity = f"rank-{rank}".encode() + b" " * (rank == 2)
    socket.connect(f"tcp://127.0.0.1:{PORT}")
    for _ in range(5):
        socket.send(b"ready")
        print(rank, socket.recv().decode(), flush=True)


def main() -> None:
    if "RANK" not in os.environ:
        ranks = []
        for rank in range(WORLD):
            own = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **own}))
        sys.exit(max(one.wait() for one in ranks))
    rank = int(os.environ["RANK"])
    Dispatcher().serve() if rank == 0 else train(rank)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [2], [0, 2]]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['recv', 'serve', 'train']
# needs = ["zmq"]
# ///
