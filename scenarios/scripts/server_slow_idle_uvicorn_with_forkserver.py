"""Healthy and idle: FastAPI under uvicorn with two engine processes of a forkserver, which wait for
a prompt over ZeroMQ; nobody asks anything for more than a minute, then a thread does, and all
ends.

A watchdog of the server looks every ten seconds whether its engines live.
"""

import asyncio
import contextlib
import multiprocessing
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator

import setproctitle
import uvicorn
import zmq
import zmq.asyncio
from fastapi import FastAPI

context = multiprocessing.get_context("forkserver")
PORT, IDLE = int(sys.argv[1]), float(sys.argv[2])


def run_engine(number: int) -> None:
    setproctitle.setproctitle(f"sglang::scheduler_TP{number}")
    socket = zmq.Context().socket(zmq.REP)
    socket.bind(f"ipc://engine{number}.sock")
    while prompt := socket.recv_string():
        socket.send_string(prompt.upper())
    socket.send_string("bye")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    engines = [context.Process(target=run_engine, args=(number,)) for number in range(2)]
    sockets = []
    for number, engine in enumerate(engines):
        engine.start()
        sockets.append(zmq.asyncio.Context.instance().socket(zmq.REQ))
        sockets[-1].connect(f"ipc://engine{number}.sock")
    app.state.sockets = sockets

    async def watch() -> None:
        while all(engine.is_alive() for engine in engines):
            await asyncio.sleep(10)

    watchdog = asyncio.create_task(watch())
    yield
    watchdog.cancel()
    for one in sockets:
        await one.send_string("")
        await one.recv_string()
    for engine in engines:
        engine.join()


app = FastAPI(lifespan=lifespan)


@app.get("/generate")
async def generate(prompt: str) -> list[str]:
    for one in app.state.sockets:
        await one.send_string(prompt)
    return [await one.recv_string() for one in app.state.sockets]


def ask(server: uvicorn.Server) -> None:
    time.sleep(IDLE)
    print(urllib.request.urlopen(f"http://127.0.0.1:{PORT}/generate?prompt=hello").read())
    server.should_exit = True


if __name__ == "__main__":
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=PORT))
    threading.Thread(target=ask, args=(server,), daemon=True).start()
    server.run()

# /// case
# command = "python train.py $PORT $AMOUNT"
# outcome = "ok"
# needs = ["fastapi", "uvicorn", "zmq", "setproctitle"]
# amount = 75.0
# limit = 240.0
# ///
