"""Rank 2's handler of SIGALRM wants the lock that the interrupted code has.

The other ranks wait for its datagram.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time

WORLD = 5
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
args = parser.parse_args()


class Statistics:
    def __init__(self) -> None:
        self.lock, self.seen = threading.Lock(), 0

    def flush(self, *_: object) -> None:
        with self.lock:
            print(f"{self.seen} seen", flush=True)

    def count(self) -> None:
        with self.lock:
            time.sleep(2)
            self.seen += 1


def train(rank: int, world: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
        mine.bind(("127.0.0.1", args.port + rank))
        if rank == 2:
            statistics = Statistics()
            signal.signal(signal.SIGALRM, statistics.flush)
            signal.alarm(1)
            statistics.count()
            for other in (0, 1, 3, 4):
                mine.sendto(b"go", ("127.0.0.1", args.port + other))
        else:
            mine.recvfrom(16)
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), WORLD)
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3, 4]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['flush', 'Lock', 'acquire', 'count']
# causes = ["self-deadlock"]
# ///
