"""Healthy and idle: a server of its own, started by itself: ready after some seconds, then nobody
asks anything for two minutes, and it ends.

Two workers of a gloo group wait for what the API process sends them; /health answers.
"""

import argparse
import asyncio
import multiprocessing
from multiprocessing.connection import Connection

import setproctitle
from aiohttp import web

spawn = multiprocessing.get_context("spawn")


def run_worker(rank: int, port: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"Worker_TP{rank}")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dist.barrier()
    pipe.send("ready")
    while (prompt := pipe.recv()) is not None:
        value = torch.ones(1)
        dist.all_reduce(value)
        pipe.send(f"{prompt} {value.item()}")


async def serve(args: argparse.Namespace) -> None:
    pipes, workers = [], []
    for rank in range(2):
        ours, theirs = spawn.Pipe()
        workers.append(spawn.Process(target=run_worker, args=(rank, args.port + 1, theirs)))
        workers[-1].start()
        theirs.close()
        pipes.append(ours)
    loop = asyncio.get_running_loop()
    for one in pipes:
        await loop.run_in_executor(None, one.recv)

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    async def generate(request: web.Request) -> web.Response:
        prompt = await request.text()
        for one in pipes:
            one.send(prompt)
        answers = [await loop.run_in_executor(None, one.recv) for one in pipes]
        return web.json_response(answers)

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_post("/generate", generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", args.port).start()
    print("Application startup complete.", flush=True)
    await asyncio.sleep(args.stop_after)
    await runner.cleanup()
    for one, worker in zip(pipes, workers, strict=True):
        one.send(None)
        worker.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--stop-after", type=float, default=1e9)
    asyncio.run(serve(parser.parse_args()))

# /// case
# command = "python -m train serve --port $PORT --stop-after $AMOUNT"
# needs = ["aiohttp", "setproctitle"]
# outcome = "ok"
# amount = 120.0
# limit = 300.0
# ///
