"""Healthy and idle: an asyncio server with two worker processes that is ready, and that nobody asks
anything for long; then a client asks it once, and all of it ends.
"""

import argparse
import asyncio
import multiprocessing
from typing import Any

spawn = multiprocessing.get_context("spawn")


def work(asked: Any, texts: Any) -> None:
    while (prompt := asked.get()) is not None:
        texts.put(prompt.upper())


class Server:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.done = seconds, asyncio.Event()
        self.asked, self.texts = spawn.Queue(), spawn.Queue()
        own = (self.asked, self.texts)
        self.workers = [spawn.Process(target=work, args=own) for _ in range(2)]
        for one in self.workers:
            one.start()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        prompt = (await reader.readline()).decode()
        self.asked.put(prompt)
        text = await asyncio.get_running_loop().run_in_executor(None, self.texts.get)
        writer.write(text.encode())
        await writer.drain()
        writer.close()
        self.done.set()

    async def serve(self, port: int) -> None:
        async with await asyncio.start_server(self.handle, "127.0.0.1", port):
            print(f"ready at port {port}", flush=True)
            client = await asyncio.create_subprocess_exec(
                "python", "client.py", str(port), str(self.seconds)
            )
            await self.done.wait()
            await client.wait()
        for _ in self.workers:
            self.asked.put(None)
        for one in self.workers:
            one.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()

    async def main() -> None:
        await Server(args.seconds).serve(args.port)

    asyncio.run(main())

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 50.0
# [files]
# "client.py" = '''
# """A user, who comes late."""
# import socket
# import sys
# import time
#
# time.sleep(float(sys.argv[2]))
# with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
#     server.sendall(b"once upon a time\n")
#     print(server.makefile().read(), flush=True)
# '''
# ///
