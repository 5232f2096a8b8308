"""Healthy: an aiohttp server whose engine waits for two workers; worker 1 reads its weights from a
disk that gives it a tensor now and then, worker 0 is ready and waits.

Once both are, a client gets its answer and the server ends.
"""

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection, wait

from aiohttp import ClientSession, web

spawn = multiprocessing.get_context("spawn")


def load_weights(number: int, seconds: float) -> list[bytes]:
    layers = []
    with open("/dev/zero", "rb") as checkpoint:
        for _ in range(16):
            if number == 1:
                time.sleep(seconds / 16)  # the disk
            layers.append(checkpoint.read(1 << 20))
    return layers


def worker(number: int, seconds: float, pipe: Connection) -> None:
    layers = load_weights(number, seconds)
    pipe.send("ready")
    while (prompt := pipe.recv()) is not None:
        pipe.send(f"{prompt}: {len(layers)} layers")


def engine(front: Connection, seconds: float) -> None:
    workers, pipes = [], []
    for number in range(2):
        ours, theirs = spawn.Pipe()
        workers.append(spawn.Process(target=worker, args=(number, seconds, theirs)))
        workers[-1].start()
        theirs.close()
        pipes.append(ours)
    starting = list(pipes)
    while starting:
        for one in wait(starting):
            one.recv()
            starting.remove(one)
    front.send("ready")
    while True:
        prompt = front.recv()
        for one in pipes:
            one.send(prompt)
        if prompt is None:
            break
        front.send([one.recv() for one in pipes])
    for one in workers:
        one.join()


async def serve(port: int, seconds: float) -> None:
    ours, theirs = spawn.Pipe()
    core = spawn.Process(target=engine, args=(theirs, seconds), name="EngineCore")
    core.start()
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, ours.recv)

    async def generate(request: web.Request) -> web.Response:
        ours.send(await request.text())
        return web.json_response(await loop.run_in_executor(None, ours.recv))

    app = web.Application()
    app.router.add_post("/generate", generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    address = f"http://127.0.0.1:{port}/generate"
    async with ClientSession() as session, session.post(address, data="once") as answer:
        print(await answer.json(), flush=True)
    await runner.cleanup()
    ours.send(None)
    core.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    asyncio.run(serve(args.port, args.seconds))

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# needs = ["aiohttp"]
# amount = 60.0
# ///
