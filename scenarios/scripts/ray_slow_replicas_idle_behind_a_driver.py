"""Healthy and idle: Ray: two async replicas behind a router, an actor as well, and a driver that
only keeps them alive for long; then it asks each once and ends.

Between requests the router waits for a queue that is empty.
"""

import asyncio
import sys
import time

import ray


@ray.remote
class Replica:
    async def generate(self, prompt: str) -> str:
        await asyncio.sleep(0.1)
        return prompt.upper()


@ray.remote
class Router:
    def __init__(self, replicas: list[ray.actor.ActorHandle]) -> None:
        self.replicas = replicas
        self.requests: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()

    async def run(self) -> None:
        number = 0
        while True:
            prompt, answer = await self.requests.get()
            if not prompt:
                return
            replica = self.replicas[number % len(self.replicas)]
            answer.set_result(await replica.generate.remote(prompt))
            number += 1

    async def ask(self, prompt: str) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await self.requests.put((prompt, answer))
        return await answer if prompt else ""


def main(seconds: float) -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    router = Router.options(max_concurrency=16).remote([Replica.remote() for _ in range(2)])
    running = router.run.remote()
    print(ray.get(router.ask.remote("warm up")), flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(10)
    for prompt in ("once", "upon", ""):
        print(ray.get(router.ask.remote(prompt)), flush=True)
    ray.get(running)


if __name__ == "__main__":
    main(float(sys.argv[1]))

# /// case
# command = "python train.py $AMOUNT"
# needs = ["ray"]
# outcome = "ok"
# amount = 70.0
# limit = 240.0
# ///
