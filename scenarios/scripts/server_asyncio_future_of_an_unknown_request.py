"""An asyncio front keeps a future for each request and gets results from its engine over ZeroMQ.
The engine answers with the request's number as text, the front looks for a number: each result
is dropped as that of an unknown request, and the future is never set.

The engine waits for its next request, and the front's loop hears it; a client of the same
program waits for the answer.
"""

import argparse
import asyncio
import json
import multiprocessing

import setproctitle
import zmq
import zmq.asyncio
from aiohttp import ClientSession, web

spawn = multiprocessing.get_context("spawn")


def run_engine() -> None:
    setproctitle.setproctitle("textserve::EngineCore")
    context = zmq.Context.instance()
    requests, results = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    requests.connect("ipc://requests.sock")
    results.connect("ipc://results.sock")
    while True:
        request = requests.recv_json()
        results.send_json({"id": str(request["id"]), "text": request["prompt"].upper()})


class Front:
    def __init__(self) -> None:
        context = zmq.asyncio.Context.instance()
        self.requests, self.results = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        self.requests.bind("ipc://requests.sock")
        self.results.bind("ipc://results.sock")
        self.waiting: dict[int, asyncio.Future[str]] = {}

    async def take_results(self) -> None:
        while True:
            result = json.loads(await self.results.recv())
            if (future := self.waiting.pop(result["id"], None)) is not None:
                future.set_result(result["text"])

    async def generate(self, request: web.Request) -> web.Response:
        number = len(self.waiting)
        future = self.waiting[number] = asyncio.get_running_loop().create_future()
        await self.requests.send(json.dumps({"id": number, "prompt": "once"}).encode())
        return web.Response(text=await future)


async def main(port: int) -> None:
    front, app = Front(), web.Application()
    app.router.add_get("/generate", front.generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    taking = asyncio.create_task(front.take_results())
    async with (
        ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/generate", timeout=None) as answer,
    ):
        print(await answer.text(), flush=True)
    taking.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    spawn.Process(target=run_engine, daemon=True).start()
    asyncio.run(main(args.port))

# /// case
# command = "python train.py --port $PORT"
# needs = ["zmq", "setproctitle", "aiohttp"]
# culprits = [[0]]
# steps = ["script", "arguments", "http"]
# after = ["Args parsed", "Served", ""]
# own_code = true
# calls = ['main', 'generate', 'asyncio\.run', 'run', 'select']
# causes = ["event-loop", "server-asks-itself", "nobody-sends", "deadlock"]
# says = ['event loop|its own|EngineCore']
# ///
