"""A server with data parallelism: its controller hands requests to three schedulers in turn by
ZeroMQ, and the second one was killed where memory ran out; what is for it is never taken.

/health answers, the other two schedulers are idle and whole. A client outside of the job waits for
the answer to the request that went to the second one.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import os
import signal

import setproctitle
import zmq
import zmq.asyncio
from aiohttp import web

spawn = multiprocessing.get_context("spawn")
WORKERS = 3


class Scheduler:
    def __init__(self, number: int) -> None:
        self.number, self.cache = number, bytearray(1 << 20)

    def run_batch(self, prompt: bytes) -> bytes:
        if self.number == 1:  # its part of the machine is the fuller one
            os.kill(os.getpid(), signal.SIGKILL)
        return prompt.upper()


def run_scheduler(number: int) -> None:
    setproctitle.setproctitle(f"textserve::scheduler_DP{number}")
    context = zmq.Context.instance()
    requests, answers = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    requests.bind(f"ipc://scheduler{number}.sock")
    answers.connect("ipc://answers.sock")
    scheduler = Scheduler(number)
    while True:
        name, prompt = requests.recv_multipart()
        answers.send_multipart([name, scheduler.run_batch(prompt)])


def run_controller() -> None:
    setproctitle.setproctitle("textserve::data_parallel_controller")
    context = zmq.Context.instance()
    requests = context.socket(zmq.PULL)
    requests.bind("ipc://requests.sock")
    workers = []
    for number in range(WORKERS):
        spawn.Process(target=run_scheduler, args=(number,)).start()
        workers.append(context.socket(zmq.PUSH))
        workers[-1].connect(f"ipc://scheduler{number}.sock")
    for worker in itertools.cycle(workers):
        worker.send_multipart(requests.recv_multipart())


class TokenizerManager:
    def __init__(self) -> None:
        context = zmq.asyncio.Context.instance()
        self.requests, self.answers = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        self.answers.bind("ipc://answers.sock")
        self.requests.connect("ipc://requests.sock")
        self.waiting: dict[bytes, asyncio.Future[bytes]] = {}

    async def handle_answers(self) -> None:
        while True:
            name, text = await self.answers.recv_multipart()
            self.waiting.pop(name).set_result(text)

    async def generate(self, prompt: bytes) -> bytes:
        name = os.urandom(8)
        self.waiting[name] = asyncio.get_running_loop().create_future()
        await self.requests.send_multipart([name, prompt])
        return await self.waiting[name]


async def serve(port: int) -> None:
    spawn.Process(target=run_controller, name="controller").start()
    manager = TokenizerManager()
    receiver = asyncio.create_task(manager.handle_answers())
    print((await manager.generate(b"warm up")).decode(), flush=True)

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    async def generate(request: web.Request) -> web.Response:
        return web.Response(body=await manager.generate(await request.read()))

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_post("/generate", generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print("The server is fired up and ready to roll!", flush=True)
    await receiver


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().port))

# /// case
# command = "python -m train serve --port $PORT"
# world = "late_client"
# needs = ["zmq", "setproctitle", "aiohttp"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['recv', 'asyncio\.run', 'serve', 'run_controller', 'generate', 'poll', 'select', '^$']
# causes = ["child-died", "worker-dead", "killed-from-outside", "rank-died", "worker-killed"]
# says = ['SIGKILL|signal 9']
# ///
