"""Ranks meet by sockets of their own; rank 2 reads a world of six where there are five.

Each rank takes connections from all that come after it. Rank 2 still waits for rank 5; the others
wait for its word.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

WORLD = 5


class Mesh:
    """A connection to every other rank: to those before by connect, from those after by accept."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.peers = rank, {}
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"rank{rank}.sock")
        listener.listen(16)
        for peer in range(rank):
            self.peers[peer] = self._connected(f"rank{peer}.sock")
        while len(self.peers) < world - 1:
            connection, _ = listener.accept()
            self.peers[int(connection.recv(4))] = connection

    def _connected(self, address: str) -> socket.socket:
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(address)
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                time.sleep(0.05)
                continue
            connection.sendall(b"%4d" % self.rank)
            return connection

    def meet(self) -> None:
        for one in self.peers.values():
            one.sendall(b"x")
        for one in self.peers.values():
            assert one.recv(1) == b"x"


def world_of(rank: int) -> int:
    settings = json.loads(Path("settings.json").read_text())
    return settings.get(str(rank), settings["default"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        mesh = Mesh(rank, world_of(rank))
        for step in range(args.steps):
            mesh.meet()
            print(f"rank {rank} step {step}", flush=True)
        return
    Path("settings.json").write_text(json.dumps({"default": WORLD, "2": WORLD + 1}))
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, "train.py"], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# absent = [5]
# waiting = [0, 1, 3, 4]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['accept', 'Mesh', 'main']
# causes = ["nobody-sends", "world-size-too-large"]
# ///
