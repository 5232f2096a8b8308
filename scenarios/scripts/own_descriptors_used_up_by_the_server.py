"""Rank 0 of four serves shards over sockets and leaks a file with each: it may open no more of
them, and its server logs that and tries again; a connection of rank 3 is never accepted.
"""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import time

WORLD = 4
PORT = int(os.environ["PORT"])


class Shards:
    def __init__(self) -> None:
        self.logs = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = await reader.readline()
        self.logs.append(os.open(os.devnull, os.O_APPEND))  # of each request, never closed
        writer.write(b"shard " + number)
        await writer.drain()
        writer.close()

    async def serve(self) -> None:
        server = await asyncio.start_server(self.answer, "127.0.0.1", PORT)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, used + 20))
        async with server:
            await server.serve_forever()


def fetch(number: int) -> bytes:
    with socket.create_connection(("127.0.0.1", PORT)) as one:
        one.sendall(b"%d\n" % number)
        return one.makefile("rb").readline()


def train(rank: int) -> None:
    time.sleep(2)
    for number in range(40):
        print(rank, fetch(number).decode().strip(), flush=True)
        time.sleep(0.05)


def main() -> None:
    if "RANK" not in os.environ:
        ranks = []
        for rank in range(WORLD):
            own = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **own}))
        sys.exit(max(one.wait() for one in ranks))
    rank = int(os.environ["RANK"])
    asyncio.run(Shards().serve()) if rank == 0 else train(rank)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0]]
# waiting = [1, 2, 3]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['serve', 'run', 'asyncio', 'main', 'select']
# ///
