"""A parameter server (aiohttp) merges the gradients of three trainers. From the third step on it
awaits within its lock that all have come, and the others' handlers await that lock.

Each trainer waits for its answer.
"""

import asyncio
import json
import os
import sys
import urllib.request

from aiohttp import web

WORLD = 3


class Parameters:
    def __init__(self) -> None:
        self.weights = [1.0] * 8
        self.lock = asyncio.Lock()
        self.step, self.gradients = 0, []
        self.merged = asyncio.Event()

    async def push(self, request: web.Request) -> web.Response:
        asked = await request.json()
        async with self.lock:  # the weights are changed by one at a time
            if asked["step"] < 3:
                self._apply(asked["gradient"])
            else:
                await self._synchronous(asked["gradient"])
        return web.json_response(self.weights)

    async def _synchronous(self, gradient: list[float]) -> None:
        self.gradients.append(gradient)
        if len(self.gradients) == WORLD:
            for one in self.gradients:
                self._apply(one)
            self.gradients.clear()
            self.merged.set()
        await self.merged.wait()

    def _apply(self, gradient: list[float]) -> None:
        self.weights = [a - 0.1 * b for a, b in zip(self.weights, gradient, strict=True)]


async def serve(port: int) -> None:
    parameters = Parameters()
    application = web.Application()
    application.router.add_post("/push", parameters.push)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    trainers = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        trainers.append(
            await asyncio.create_subprocess_exec(sys.executable, *sys.argv, "trainer", env=own)
        )
    await asyncio.gather(*(one.wait() for one in trainers))
    await runner.cleanup()


class Client:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/push"

    def pushed(self, step: int, gradient: list[float]) -> list[float]:
        body = json.dumps({"step": step, "gradient": gradient}).encode()
        asked = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked) as answer:
            return json.load(answer)


def train(port: int) -> None:
    client, weights = Client(port), [1.0] * 8
    for step in range(1, 9):
        weights = client.pushed(step, [0.5 * one for one in weights])
        print(f"rank {os.environ['RANK']} step {step}", flush=True)


if __name__ == "__main__":
    if sys.argv[2:] == ["trainer"]:
        train(int(sys.argv[1]))
    else:
        asyncio.run(serve(int(sys.argv[1])))

# /// case
# command = "python train.py $PORT"
# needs = ["aiohttp"]
# culprits = [[-1]]
# waiting = [0, 1, 2]
# steps = ["script", "http"]
# after = [""]
# own_code = true
# calls = ['asyncio', 'select', 'poll', 'serve', 'push', '_synchronous']
# causes = [
#   "event-loop", "tasks-await-one-another", "server-process-stuck", "self-deadlock", "deadlock",
#   "loop-waits-for-itself",
# ]
# ///
