"""FastAPI under uvicorn: its lifespan starts two engine processes and awaits both. Engine 1 takes
its turn at the cache of kernels by a file that it must create; an engine of yesterday left that
there.

Engine 0 has its kernels and waits for a prompt. The port is opened when the lifespan has begun.
"""

import asyncio
import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection

import setproctitle
import uvicorn
from fastapi import FastAPI

spawn = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def turn(path: str):
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(0.5)
    yield
    os.unlink(path)


def run_engine(number: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"serve::engine_{number}")
    with turn(f"kernels-{number}.lock"):
        kernels = [bytes(1000) for _ in range(20)]
    pipe.send("ready")
    while prompt := pipe.recv():
        pipe.send(f"{prompt} by {len(kernels)} kernels")


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    pipes = []
    for number in range(2):
        ours, theirs = spawn.Pipe()
        spawn.Process(target=run_engine, args=(number, theirs), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    app.state.pipes = pipes
    await asyncio.gather(*(asyncio.to_thread(one.recv) for one in pipes))
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health() -> str:
    return "ok"


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]))

# /// case
# command = "python train.py $PORT"
# needs = ["fastapi", "uvicorn", "setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['turn', 'sleep', 'run_engine', 'uvicorn', 'run']
# causes = ["lock-file-left", "lock-file-without-owner", "polling-loop"]
# says = ['engine_1|kernels-1\.lock']
# [files]
# "kernels-1.lock" = "4711"
# ///
