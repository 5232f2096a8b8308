"""Rank 2 waits for a thread of its own, while all others meet at a hub of sockets.

A parent starts the ranks one by one, without torch. The ranks have no torch: rank 0 hears "ready"
of each over TCP and says "go". Rank 2 wants the lock of its table of rows first, which its
refresher has, and that waits for a notification of nobody.
"""

import argparse
import os
import socket
import subprocess
import sys
import threading


class Rows:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fresh = threading.Condition()
        self.rows = list(range(100))

    def refresh(self, started: threading.Event) -> None:
        with self.lock, self.fresh:
            started.set()
            self.fresh.wait()
            self.rows.append(len(self.rows))

    def first(self) -> int:
        with self.lock:
            return self.rows[0]


def read_rows(rank: int) -> int:
    rows = Rows()
    if rank == 2:
        started = threading.Event()
        threading.Thread(target=rows.refresh, args=(started,), daemon=True).start()
        started.wait()
    return rows.first()


def hub(server: socket.socket, world: int) -> None:
    joined = []
    for _ in range(world - 1):
        one, _ = server.accept()
        joined.append(one)
    for one in joined:
        while one.recv(16) != b"ready":
            pass
    for one in joined:
        one.sendall(b"go")


def train(rank: int, world: int, port: int) -> None:
    if rank == 0:
        with socket.create_server(("127.0.0.1", port)) as server:
            read_rows(rank)
            hub(server, world)
        return
    while True:
        try:
            one = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            continue
    with one:
        read_rows(rank)
        one.sendall(b"ready")
        assert one.recv(16) == b"go"
    print(f"rank {rank} trains", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--world", type=int, default=4)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.world, args.port)
        return
    ranks = []
    for rank in range(args.world):
        own = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(args.world),
            "LOCAL_RANK": str(rank),
        }
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['Rows\.first', 'Lock', 'acquire', 'first', 'read_rows']
# causes = ["unknown"]
# ///
