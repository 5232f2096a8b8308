"""Healthy: the first request of a server makes its engine compile for most of a minute (it
computes, in another process); the front's loop waits for the answer over a pipe, the client for
the front.
"""

import argparse
import asyncio
import multiprocessing
import time
import urllib.request
from multiprocessing.connection import Connection

import setproctitle
from aiohttp import web

spawn = multiprocessing.get_context("spawn")


def compile_graph(seconds: float) -> int:
    end, value = time.monotonic() + seconds, 1
    while time.monotonic() < end:
        value = sum(value * number % 7 for number in range(2000))
    return value


def run_engine(pipe: Connection, seconds: float) -> None:
    setproctitle.setproctitle("textserve::Engine")
    compiled = False
    while (prompt := pipe.recv()) is not None:
        if not compiled:
            compile_graph(seconds)
            compiled = True
        pipe.send(prompt.upper())


async def main(port: int, seconds: float) -> None:
    ours, theirs = spawn.Pipe()
    engine = spawn.Process(target=run_engine, args=(theirs, seconds))
    engine.start()

    async def generate(request: web.Request) -> web.Response:
        ours.send(await request.text())
        return web.Response(text=await asyncio.to_thread(ours.recv))

    app = web.Application()
    app.router.add_post("/generate", generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()

    def ask() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/generate", b"once") as answer:
            return answer.read().decode()

    print(await asyncio.to_thread(ask), flush=True)
    ours.send(None)
    engine.join()
    await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    asyncio.run(main(args.port, args.seconds))

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# needs = ["setproctitle", "aiohttp"]
# outcome = "ok"
# amount = 50.0
# limit = 240.0
# ///
