"""An asyncio server awaits a lock that a cancelled task has kept: its first warm-up request takes
longer than its time limit and is cancelled between acquire() and its try; the second one waits.

The event loop has nothing to do: no thread, no process and no file is waited for.
"""

import argparse
import asyncio

from aiohttp import web


class Engine:
    def __init__(self) -> None:
        self.slot = asyncio.Lock()
        self.compiled = False

    async def compile(self) -> None:
        await asyncio.sleep(4)  # a compiler on another machine
        self.compiled = True

    async def generate(self, prompt: str) -> str:
        await self.slot.acquire()
        if not self.compiled:
            await self.compile()
        try:
            await asyncio.sleep(0.01)
            return prompt.upper()
        finally:
            self.slot.release()


class Server:
    def __init__(self) -> None:
        self.engine = Engine()

    async def generate(self, request: web.Request) -> web.Response:
        return web.Response(text=await self.engine.generate(await request.text()))

    async def warm_up(self) -> None:
        for prompt in ("once", "upon a time"):
            try:
                limit = 2 if prompt == "once" else None
                await asyncio.wait_for(self.engine.generate(prompt), limit)
            except TimeoutError:
                print("the first request compiles: ignored", flush=True)


async def serve(port: int) -> None:
    server = Server()
    await server.warm_up()
    app = web.Application()
    app.router.add_post("/generate", server.generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().port))

# /// case
# command = "python train.py --port $PORT"
# needs = ["aiohttp"]
# culprits = [[0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['asyncio\.run', 'acquire', 'generate', 'warm_up', 'serve', 'select', 'poll']
# causes = ["event-loop", "dead-owner", "self-deadlock", "unknown"]
# ///
