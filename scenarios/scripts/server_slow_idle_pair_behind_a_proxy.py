"""Healthy and idle: a proxy in front of a prefill and a decode server; for long nobody asks
anything, then one request goes through both, and all of it ends.

The two servers have connected their side channel by ZeroMQ, and each has a worker that waits for
its next word.
"""

import argparse
import asyncio
import multiprocessing
import time
import urllib.request
from multiprocessing.connection import Connection

import setproctitle
import zmq
from aiohttp import ClientSession, web

spawn = multiprocessing.get_context("spawn")


def run_worker(role: str, words: Connection) -> None:
    setproctitle.setproctitle(f"kvserve::{role}_TP0")
    blocks = zmq.Context.instance().socket(zmq.PAIR)
    if role == "prefill":
        blocks.bind("ipc://blocks.sock")
    else:
        blocks.connect("ipc://blocks.sock")
    words.send("ready")
    while (prompt := words.recv()) is not None:
        if role == "prefill":
            blocks.send_string(prompt)
            words.send("prefilled")
        else:
            words.send(blocks.recv_string().upper())


def run_server(role: str, port: int) -> None:
    setproctitle.setproctitle(f"kvserve::{role}_server")
    ours, theirs = spawn.Pipe()
    worker = spawn.Process(target=run_worker, args=(role, theirs))
    worker.start()
    theirs.close()
    ours.recv()
    done = asyncio.Event()

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    async def generate(request: web.Request) -> web.Response:
        ours.send(await request.text())
        answer = await asyncio.get_running_loop().run_in_executor(None, ours.recv)
        return web.Response(text=answer)

    async def stop(request: web.Request) -> web.Response:
        ours.send(None)
        done.set()
        return web.Response()

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/health", health)
        app.router.add_post("/generate", generate)
        app.router.add_post("/stop", stop)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await done.wait()
        await asyncio.sleep(0.5)
        await runner.cleanup()

    asyncio.run(serve())
    worker.join()


async def proxy(ports: list[int], seconds: float) -> None:
    await asyncio.sleep(seconds)  # nobody asks
    async with ClientSession() as session:
        for path in ("generate", "stop"):
            for port in ports:
                url = f"http://127.0.0.1:{port}/{path}"
                async with session.post(url, data="once upon a time") as answer:
                    print(await answer.text(), flush=True)


def wait_until_healthy(port: int) -> None:
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    ports = [args.port, args.port + 1]
    servers = [
        spawn.Process(target=run_server, args=pair)
        for pair in zip(("prefill", "decode"), ports, strict=True)
    ]
    for one in servers:
        one.start()
    for port in ports:
        wait_until_healthy(port)
    print("The proxy is ready.", flush=True)
    asyncio.run(proxy(ports, args.seconds))
    for one in servers:
        one.join()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# needs = ["aiohttp", "setproctitle", "zmq"]
# outcome = "ok"
# amount = 80.0
# limit = 240.0
# ///
