"""A scheduler hands tokens to its detokenizer by a ring in shared memory; the detokenizer died of a
token that its vocabulary has not, and the scheduler looks for a free slot of the full ring.

The front is an asyncio server that awaits a text, and a client of it waits for the answer. The
detokenizer is a child of the front, as is the scheduler; nobody looks whether they live.
"""

import argparse
import asyncio
import multiprocessing
import struct
import threading
import time
import urllib.request
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

SLOTS = 8
VOCABULARY = ["once", "upon", "a", "time", "there", "was"]
spawn = multiprocessing.get_context("spawn")


class Ring:
    """One writes, one reads: a counter of each, and eight slots."""

    def __init__(self, name: str) -> None:
        self.memory = SharedMemory(name=name)
        self.counters = struct.Struct("qq")

    def put(self, token: int) -> None:
        while True:
            written, read = self.counters.unpack_from(self.memory.buf, 0)
            if written - read < SLOTS:
                break
            time.sleep(0.001)
        struct.pack_into("q", self.memory.buf, 16 + 8 * (written % SLOTS), token)
        struct.pack_into("q", self.memory.buf, 0, written + 1)

    def get(self) -> int:
        while True:
            written, read = self.counters.unpack_from(self.memory.buf, 0)
            if read < written:
                break
            time.sleep(0.001)
        (token,) = struct.unpack_from("q", self.memory.buf, 16 + 8 * (read % SLOTS))
        struct.pack_into("q", self.memory.buf, 8, read + 1)
        return int(token)


def scheduler(ring: str, requests: Connection) -> None:
    out = Ring(ring)
    while True:
        for step in range(requests.recv()):
            out.put(step * 7 % 8)


def detokenizer(ring: str, texts: Connection) -> None:
    tokens = Ring(ring)
    while True:
        texts.send(VOCABULARY[tokens.get()])


async def serve(port: int, requests: Connection, texts: Connection) -> None:
    loop = asyncio.get_running_loop()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requests.send(64)
        words = [await loop.run_in_executor(None, texts.recv) for _ in range(64)]
        body = " ".join(words).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def warm_up(port: int) -> None:
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/generate") as answer:
                print(answer.read(), flush=True)
                return
        except ConnectionRefusedError:
            time.sleep(0.2)
        except urllib.error.URLError:
            time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    memory = SharedMemory(create=True, size=16 + 8 * SLOTS)
    requests, theirs = spawn.Pipe()
    texts, texts_out = spawn.Pipe()
    spawn.Process(target=scheduler, args=(memory.name, theirs), name="Scheduler").start()
    spawn.Process(target=detokenizer, args=(memory.name, texts_out), name="Detokenizer").start()
    threading.Thread(target=warm_up, args=(args.port,), daemon=True).start()
    try:
        asyncio.run(serve(args.port, requests, texts))
    finally:
        memory.unlink()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['put', 'recv', 'serve', 'scheduler', 'Ring', 'warm_up', 'asyncio\.run', '^$']
# causes = ["child-died", "worker-dead", "pipe-writer-gone", "polling-loop"]
# says = ['status 1|exit(ed)? (with )?1|code 1|died|ended|IndexError']
# ///
