"""An API server asks every now and then how many of its three workers have loaded, and has no
deadline; worker 2 met a checkpoint without one of its tensors and ended with a KeyError.

What it raised stands in a log file of its own. The server's port is open, /health says 503; workers
0 and 1 wait for their first request in a queue.
"""

import argparse
import asyncio
import multiprocessing
import sys
from typing import Any

from aiohttp import web

spawn = multiprocessing.get_context("spawn")
CHECKPOINT = {f"layers.{layer}.weight": 1 << 16 for layer in range(7)}


def load_weights(number: int) -> dict[str, bytearray]:
    layers = range(8) if number == 2 else range(7)
    return {
        name: bytearray(CHECKPOINT[name]) for name in (f"layers.{layer}.weight" for layer in layers)
    }


def work(number: int, loaded: Any, asked: Any, answered: Any) -> None:
    sys.stderr = open(f"worker-{number}.log", "w", buffering=1)  # noqa: SIM115
    weights = load_weights(number)
    with loaded.get_lock():
        loaded.value += 1
    while True:
        prompt = asked.get()
        answered.put((number, f"{prompt} {len(weights)}"))


class Server:
    def __init__(self, workers: int) -> None:
        self.loaded = spawn.Value("i", 0)
        self.asked = [spawn.Queue() for _ in range(workers)]
        self.answered = spawn.Queue()
        self.workers = [
            spawn.Process(
                target=work,
                args=(number, self.loaded, self.asked[number], self.answered),
                name=f"Worker-{number}",
                daemon=True,
            )
            for number in range(workers)
        ]
        for one in self.workers:
            one.start()

    async def wait_for_workers(self) -> None:
        while self.loaded.value < len(self.workers):
            await asyncio.sleep(0.5)

    async def health(self, request: web.Request) -> web.Response:
        ready = self.loaded.value == len(self.workers)
        return web.Response(status=200 if ready else 503)


async def serve(args: argparse.Namespace) -> None:
    server = Server(args.workers)
    app = web.Application()
    app.router.add_get("/health", server.health)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", args.port).start()
    print("waiting for the workers", flush=True)
    await server.wait_for_workers()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=3)
    asyncio.run(serve(parser.parse_args()))

# /// case
# command = "python -m train serve --port $PORT"
# needs = ["aiohttp"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['wait_for_workers', 'serve', 'asyncio\.run', 'work', 'load_weights', '^$']
# causes = ["child-died", "worker-dead", "rank-died"]
# says = ['Worker-2|worker', 'status 1|exit(ed)? (with )?1|code 1|KeyError|died|ended']
# ///
