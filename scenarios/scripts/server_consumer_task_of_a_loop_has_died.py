"""An asyncio server puts each request into a bounded asyncio.Queue, from which one task takes
them. That task met a request without a prompt and ended with a KeyError, which nobody awaits;
the queue is full after four requests, and all handlers wait: the first for its result, the last
for room.

The loop runs, its port is open. Six clients of the same command wait for their answers.
"""

import argparse
import asyncio
import multiprocessing
import urllib.request

from aiohttp import web

spawn = multiprocessing.get_context("spawn")


class Batcher:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[dict[str, str], asyncio.Future[str]]] = asyncio.Queue(4)

    async def run(self) -> None:
        while True:
            request, future = await self.queue.get()
            future.set_result(request["prompt"].upper())

    async def generate(self, request: web.Request) -> web.Response:
        future = asyncio.get_running_loop().create_future()
        await self.queue.put((dict(request.query), future))
        return web.Response(text=await future)


async def make_app() -> web.Application:
    app, batcher = web.Application(), Batcher()
    app["batcher"] = asyncio.create_task(batcher.run())
    app.router.add_get("/generate", batcher.generate)
    return app


def ask(port: int, number: int) -> None:
    query = "?prompt=once" if number != 1 else "?text=once"
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/generate{query}") as answer:
                print(number, answer.read().decode(), flush=True)
                return
        except ConnectionRefusedError:
            pass
        except urllib.error.URLError:
            pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    for number in range(6):
        spawn.Process(target=ask, args=(args.port, number), daemon=True).start()
    web.run_app(make_app(), host="127.0.0.1", port=args.port, print=None)

# /// case
# command = "python train.py --port $PORT"
# needs = ["aiohttp"]
# culprits = [[0]]
# steps = ["script", "arguments", "http"]
# after = ["Args parsed", "Served", ""]
# own_code = true
# calls = ['run_app', 'run', 'select', 'asyncio', 'generate']
# causes = ["event-loop", "nobody-sends", "deadlock", "child-process-stuck", "server-process-stuck"]
# says = ['event loop|KeyError|wait|127\.0\.0\.1:\d+']
# ///
