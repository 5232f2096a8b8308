"""An API server of asyncio starts an engine, and the engine two workers, each of which says over a
pipe that it has its weights. Worker 1 is killed while it loads, as where memory runs out.

The engine still holds the worker's own end of the pipe, so its recv() never ends; the API server
awaits the engine's word and has opened its port already. Worker 0 waits for its first request.
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

from aiohttp import web

spawn = multiprocessing.get_context("spawn")


def load_weights(number: int) -> list[bytearray]:
    layers = []
    for layer in range(8):
        layers.append(bytearray(1 << 20))
        if number == 1 and layer == 5:
            os.kill(os.getpid(), signal.SIGKILL)
    return layers


def worker(number: int, pipe: Connection) -> None:
    layers = load_weights(number)
    pipe.send("ready")
    while True:
        pipe.send(f"{pipe.recv()}: {len(layers)} layers")


def engine(front: Connection) -> None:
    pipes = []
    for number in range(2):
        ours, theirs = spawn.Pipe()
        spawn.Process(target=worker, args=(number, theirs), name=f"Worker-{number}").start()
        pipes.append((ours, theirs))
    for ours, _ in pipes:
        assert ours.recv() == "ready"
    front.send("ready")
    while True:
        prompt = front.recv()
        for ours, _ in pipes:
            ours.send(prompt)
        front.send([ours.recv() for ours, _ in pipes])


class Server:
    def __init__(self) -> None:
        self.pipe, theirs = spawn.Pipe()
        self.engine = spawn.Process(target=engine, args=(theirs,), name="EngineCore")
        self.ready = asyncio.Event()
        self.lock = asyncio.Lock()
        self.engine.start()

    async def answer(self) -> object:
        return await asyncio.get_running_loop().run_in_executor(None, self.pipe.recv)

    async def wait_for_engine(self) -> None:
        print("waiting for the engine core to start", flush=True)
        await self.answer()
        self.ready.set()
        print("ready", flush=True)

    async def health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready.is_set() else 503)

    async def generate(self, request: web.Request) -> web.Response:
        await self.ready.wait()
        async with self.lock:
            self.pipe.send(await request.text())
            return web.json_response(await self.answer())


async def main(port: int) -> None:
    server = Server()
    app = web.Application()
    app.router.add_get("/health", server.health)
    app.router.add_post("/generate", server.generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await server.wait_for_engine()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(main(parser.parse_args().port))

# /// case
# command = "python train.py --port $PORT"
# needs = ["aiohttp"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['recv', 'engine', 'wait_for_engine', 'answer', 'asyncio\.run', '^$']
# causes = ["child-died", "worker-dead", "killed-from-outside", "pipe-writer-gone"]
# says = ['SIGKILL|signal 9']
# ///
