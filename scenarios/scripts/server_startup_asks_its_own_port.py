"""A server of aiohttp warms itself up in its startup hook: it asks its own endpoint until that
answers. The port is opened when all startup hooks are done.

The hook sleeps and tries again, is refused each time, and the server never comes to listen.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web


async def generate(request: web.Request) -> web.Response:
    prompt = await request.text()
    return web.Response(text=f"{prompt} there was")


async def warm_up(port: int) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(f"http://127.0.0.1:{port}/generate", data="once") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(1)


def make_app(port: int) -> web.Application:
    async def lifespan(app: web.Application) -> AsyncIterator[None]:
        print("warming up", flush=True)
        await warm_up(port)
        print("ready", flush=True)
        yield

    app = web.Application()
    app.router.add_post("/generate", generate)
    app.cleanup_ctx.append(lifespan)
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    web.run_app(make_app(args.port), host="127.0.0.1", port=args.port, print=None)

# /// case
# command = "python train.py --port $PORT"
# needs = ["aiohttp"]
# culprits = [[0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['warm_up', 'lifespan', 'run_app', 'run', 'select', '<module>']
# causes = ["polling-loop", "retry-loop", "endpoint-unserved", "own-code-sleeps", "event-loop"]
# ///
