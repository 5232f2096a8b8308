"""Healthy and idle: a gRPC service with a worker process behind it; its client has an open stream
for events on which nothing comes for long, then asks once, and both end.
"""

import asyncio
import multiprocessing
import sys
from multiprocessing.connection import Connection

import grpc
import setproctitle

spawn = multiprocessing.get_context("spawn")


def work(words: Connection) -> None:
    setproctitle.setproctitle("infer::worker_TP0")
    while (prompt := words.recv_bytes()) != b"stop":
        words.send_bytes(prompt.upper())


class Service(grpc.GenericRpcHandler):
    def __init__(self, worker: Connection) -> None:
        self.worker, self.events = worker, asyncio.Queue()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method.endswith("/Generate"):
            return grpc.unary_unary_rpc_method_handler(self.generate)
        return grpc.unary_stream_rpc_method_handler(self.watch)

    async def generate(self, prompt: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.worker.send_bytes(prompt)
        text = await asyncio.to_thread(self.worker.recv_bytes)
        await self.events.put(b"done")
        return text

    async def watch(self, _: bytes, context: grpc.aio.ServicerContext):
        yield b"watched"
        yield await self.events.get()


async def serve(port: int, worker: Connection) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Service(worker),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def run_server(port: int) -> None:
    setproctitle.setproctitle("infer::grpc_server")
    ours, theirs = spawn.Pipe()
    spawn.Process(target=work, args=(theirs,), daemon=True).start()
    asyncio.run(serve(port, ours))


async def use(port: int, seconds: float) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        events = channel.unary_stream("/Infer/Watch")(b"", wait_for_ready=True)
        print(await events.read(), flush=True)
        await asyncio.sleep(seconds)
        print(await channel.unary_unary("/Infer/Generate")(b"once"), flush=True)
        print(await events.read(), flush=True)


if __name__ == "__main__":
    server = spawn.Process(target=run_server, args=(int(sys.argv[1]),))
    server.start()
    asyncio.run(use(int(sys.argv[1]), float(sys.argv[2])))
    server.terminate()
    server.join()

# /// case
# command = "python train.py $PORT $AMOUNT"
# needs = ["grpc", "setproctitle"]
# outcome = "ok"
# amount = 70.0
# limit = 240.0
# ///
