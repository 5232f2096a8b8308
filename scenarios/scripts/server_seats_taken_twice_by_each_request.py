"""An asyncio server lets two requests in at a time; each takes a seat to be admitted and, inside, a
second one to be generated, of the same semaphore. Two requests at once keep each other out.

The server's loop is idle and answers /health; the client, which the server's launcher started
beside it, waits for both answers without a time limit.
"""

import asyncio
import functools
import multiprocessing
import sys
import time
import urllib.request

import aiohttp
import setproctitle
from aiohttp import web

spawn = multiprocessing.get_context("spawn")


def seated(handler):
    """Return the handler, which then takes a seat for as long as it runs."""

    @functools.wraps(handler)
    async def wrapped(self: "Engine", *words: str) -> str:
        async with self.seats:
            return await handler(self, *words)

    return wrapped


class Engine:
    def __init__(self, seats: int) -> None:
        self.seats = asyncio.Semaphore(seats)

    @seated
    async def complete(self, prompt: str) -> str:
        await asyncio.sleep(0.2)  # the tokenizer
        return await self.generate(prompt)

    @seated
    async def generate(self, prompt: str) -> str:
        await asyncio.sleep(0.5)
        return prompt.upper()


def run_server(port: int) -> None:
    setproctitle.setproctitle("chatserve::api_server")

    async def make_app() -> web.Application:
        engine, app = Engine(2), web.Application()

        async def complete(request: web.Request) -> web.Response:
            return web.Response(text=await engine.complete(await request.text()))

        async def health(_: web.Request) -> web.Response:
            return web.Response(text="ok")

        app.add_routes([web.post("/complete", complete), web.get("/health", health)])
        return app

    web.run_app(make_app(), host="127.0.0.1", port=port, print=None)


async def use(port: int) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as session:

        async def ask(prompt: str) -> str:
            async with session.post(f"http://127.0.0.1:{port}/complete", data=prompt) as answer:
                return await answer.text()

        print(await ask("alone"), flush=True)
        print(await asyncio.gather(ask("one"), ask("two")), flush=True)


def main(port: int) -> None:
    spawn.Process(target=run_server, args=(port,), daemon=True).start()
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            break
        except OSError:
            time.sleep(0.3)
    asyncio.run(use(port))


if __name__ == "__main__":
    main(int(sys.argv[1]))

# /// case
# command = "python train.py $PORT"
# needs = ["aiohttp", "setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "http"]
# after = ["", "Served"]
# own_code = true
# calls = ['use', 'asyncio', 'select', 'run', 'main']
# causes = ["endpoint-silent", "event-loop", "loop-waits-for-itself", "child-process-stuck"]
# says = ['api_server|127\.0\.0\.1:\d+']
# ///
