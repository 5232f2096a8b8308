"""A server that shall end does not: its shutdown waits until the open streams are over, a stream
waits for the engine's next token, and the engine's task was the first to be cancelled.

A client of its own reads the stream, in a thread. The server's time is over after four tokens.
"""

import argparse
import asyncio
import threading
import urllib.request

from aiohttp import web


class Server:
    def __init__(self) -> None:
        self.tokens: asyncio.Queue[str] = asyncio.Queue()
        self.enough, self.streams = asyncio.Event(), asyncio.Event()
        self.open = 0
        self.streams.set()

    async def decode(self) -> None:
        for number in range(1000):
            await asyncio.sleep(0.2)
            await self.tokens.put(f"token {number}\n")
            if number == 3:
                self.enough.set()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        self.open += 1
        self.streams.clear()
        while (token := await self.tokens.get()) != "":
            await answer.write(token.encode())
        self.open -= 1
        if not self.open:
            self.streams.set()
        return answer

    async def shut_down(self, engine: asyncio.Task[None]) -> None:
        engine.cancel()
        await asyncio.wait([engine])
        print("waiting for open streams", flush=True)
        await self.streams.wait()


def read(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stream") as stream:
        for line in stream:
            print(line.decode().strip(), flush=True)


async def serve(port: int) -> None:
    server = Server()
    app = web.Application()
    app.router.add_get("/stream", server.stream)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    engine = asyncio.create_task(server.decode())
    threading.Thread(target=read, args=(port,), name="client").start()
    await server.enough.wait()
    await server.shut_down(engine)
    await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().port))

# /// case
# command = "python train.py --port $PORT"
# needs = ["aiohttp"]
# culprits = [[0]]
# steps = ["script", "arguments", "http"]
# after = ["Args parsed", ""]
# own_code = true
# calls = [
#   'asyncio\.run', 'shut_down', 'stream', 'serve', 'select', 'poll', 'read', 'urlopen', 'wait',
# ]
# causes = ["event-loop", "dead-producer", "unknown"]
# ///
