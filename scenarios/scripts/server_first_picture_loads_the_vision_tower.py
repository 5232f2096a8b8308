"""A server that is ready hangs at its first request: worker TP1 loads its vision tower only then,
from a service that never answers; TP0 has its part and waits in all_reduce.

Who asks is outside of the job. /health goes on to answer 200, for it asks no worker.
"""

import argparse
import asyncio
import multiprocessing
import os
import urllib.request
from multiprocessing.connection import Connection

import setproctitle
from aiohttp import web

spawn = multiprocessing.get_context("spawn")


class Worker:
    def __init__(self, rank: int, world: int, port: int) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        self.rank, self.torch, self.dist = rank, torch, dist
        self.tower: bytes | None = None
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
        )
        dist.barrier()

    def load_vision_tower(self) -> bytes:
        if self.rank == 0:
            return b"part 0"
        with urllib.request.urlopen(f"{os.environ['SERVICE']}/vision-part-1") as part:
            return bytes(part.read())

    def execute(self, prompt: str) -> str:
        if self.tower is None:
            self.tower = self.load_vision_tower()
        value = self.torch.ones(4)
        self.dist.all_reduce(value)
        return f"{prompt} {value.sum().item()}"


def run_worker(rank: int, world: int, port: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"Worker_TP{rank}")
    worker = Worker(rank, world, port)
    pipe.send("ready")
    while True:
        pipe.send(worker.execute(pipe.recv()))


class Server:
    def __init__(self, world: int, port: int) -> None:
        self.pipes, self.lock = [], asyncio.Lock()
        for rank in range(world):
            ours, theirs = spawn.Pipe()
            spawn.Process(target=run_worker, args=(rank, world, port, theirs), daemon=True).start()
            theirs.close()
            self.pipes.append(ours)

    def receive(self) -> list[str]:
        return [one.recv() for one in self.pipes]

    async def answers(self) -> list[str]:
        return await asyncio.get_running_loop().run_in_executor(None, self.receive)

    async def generate(self, request: web.Request) -> web.Response:
        prompt = await request.text()
        async with self.lock:
            for one in self.pipes:
                one.send(prompt)
            return web.json_response((await self.answers())[0])

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()


async def serve(args: argparse.Namespace) -> None:
    server = Server(args.tp, args.port + 1)
    await server.answers()
    app = web.Application()
    app.router.add_get("/health", server.health)
    app.router.add_post("/generate", server.generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", args.port).start()
    print(f"Application startup complete, port {args.port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args()))

# /// case
# command = "python -m train serve --port $PORT"
# world = "late_client_and_silent_service"
# needs = ["aiohttp", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "script", "process_group", "barrier", "first_collective", "http"]
# after = ["Process group ready", "Barrier passed", "First barrier passed", "torch imported", ""]
# own_code = true
# calls = ['urlopen', 'load_vision_tower', 'readinto', 'recv']
# causes = ["endpoint-silent", "service-silent"]
# says = ['TP1']
# ///
