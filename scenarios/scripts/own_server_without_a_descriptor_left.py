"""Four ranks meet at a server of asyncio in rank 1, which has opened every part of its shard and
closed none: there is no descriptor left to accept the last of them.

The server says so on its log and tries again each second; rank 3 waits for an answer.
"""

import argparse
import asyncio
import os
import resource
import socket
import subprocess
import sys
import threading
import time

WORLD = 4


class Meeting:
    """Answers all once all have come."""

    def __init__(self) -> None:
        self.here = 0
        self.all_here = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        self.here += 1
        if self.here == WORLD:
            self.all_here.set()
        await self.all_here.wait()
        writer.write(b"go\n")
        await writer.drain()
        writer.close()


async def run_server(port: int, up: threading.Event) -> None:
    meeting = Meeting()
    server = await asyncio.start_server(meeting.serve, "127.0.0.1", port)
    up.set()
    async with server:
        await server.serve_forever()


def open_parts(count: int) -> list[int]:
    with open("part", "wb") as file:
        file.write(os.urandom(512))
    return [os.open("part", os.O_RDONLY) for _ in range(count)]


def serve_beside(port: int) -> None:
    up = threading.Event()
    threading.Thread(target=lambda: asyncio.run(run_server(port, up)), daemon=True).start()
    up.wait()
    own = connect(port)  # rank 1 is the first to come
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    used = len(os.listdir("/proc/self/fd"))
    globals()["parts"] = open_parts(128 - used - 1)  # two more may come
    meet(own)


def connect(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.2)


def meet(connection: socket.socket) -> None:
    connection.sendall(b"here")
    connection.recv(3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    if "RANK" in os.environ:
        rank = int(os.environ["RANK"])
        if rank == 1:
            serve_beside(given.port)
        else:
            time.sleep(2 + rank)
            meet(connect(given.port))
        print(f"rank {rank} done", flush=True)
        return
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, "RANK": str(one), "LOCAL_RANK": str(one), "WORLD_SIZE": str(WORLD)},
        )
        for one in range(WORLD)
    ]
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["arguments", "training"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['meet', 'recv', 'serve_beside', 'main', 'run_server', 'serve_forever']
# causes = ["connections-not-taken", "unknown"]
# ///
