"""Healthy and slow: three trainers ask a coordinator (aiohttp) by long polls for the next round; it
answers when its collection of rollouts is over, which is a timer of its event loop.

Nothing moves meanwhile.
"""

import asyncio
import json
import os
import sys
import urllib.request

from aiohttp import web

WORLD = 3
ROUNDS = 3


class Coordinator:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.round = seconds, 0
        self.changed = asyncio.Condition()

    async def collect(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(self.seconds / ROUNDS)
            async with self.changed:
                self.round += 1
                self.changed.notify_all()

    async def next_round(self, request: web.Request) -> web.Response:
        after = int(request.query["after"])
        async with self.changed:
            await self.changed.wait_for(lambda: self.round > after)
        return web.json_response({"round": self.round})


async def serve(port: int, seconds: float) -> None:
    coordinator = Coordinator(seconds)
    application = web.Application()
    application.router.add_get("/next", coordinator.next_round)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    trainers = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        trainers.append(
            await asyncio.create_subprocess_exec(sys.executable, *sys.argv, "trainer", env=own)
        )
    await coordinator.collect()
    await asyncio.gather(*(one.wait() for one in trainers))
    await runner.cleanup()


def train(port: int) -> None:
    done = 0
    while done < ROUNDS:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/next?after={done}") as answer:
            done = json.load(answer)["round"]
        print(f"rank {os.environ['RANK']} round {done}", flush=True)


if __name__ == "__main__":
    if sys.argv[3:] == ["trainer"]:
        train(int(sys.argv[1]))
    else:
        asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))

# /// case
# command = "python train.py $PORT $AMOUNT"
# outcome = "ok"
# needs = ["aiohttp"]
# amount = 75.0
# limit = 200.0
# ///
