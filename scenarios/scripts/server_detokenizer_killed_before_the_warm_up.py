"""A server of a tokenizer manager, two schedulers and a detokenizer, over ZeroMQ. The detokenizer
is killed while it builds its tables (SIGKILL, for want of memory), and the warm-up waits for a
text.

Nobody looks at its status: the manager polls the socket of answers, both schedulers have sent
their tokens and wait for the next request.
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection

import setproctitle
import zmq
import zmq.asyncio

spawn = multiprocessing.get_context("spawn")
REQUESTS, TOKENS, TEXTS = "ipc://requests.sock", "ipc://tokens.sock", "ipc://texts.sock"


def run_scheduler(rank: int, peer: Connection) -> None:
    setproctitle.setproctitle(f"sglang::scheduler_TP{rank}")
    context = zmq.Context()
    if rank == 0:
        requests, tokens = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        requests.bind(REQUESTS)
        tokens.connect(TOKENS)
        while True:
            request = requests.recv_pyobj()
            peer.send(request)
            tokens.send_pyobj({"rid": request["rid"], "ids": [peer.recv(), 2]})
    while True:
        peer.recv()
        peer.send(4711)


def run_detokenizer() -> None:
    setproctitle.setproctitle("sglang::detokenizer")
    tables = []
    for part in range(6):
        tables.append({f"token{part}-{n}": n for n in range(20_000)})
        if part == 4:
            os.kill(os.getpid(), signal.SIGKILL)
    context = zmq.Context()
    tokens, texts = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    tokens.bind(TOKENS)
    texts.connect(TEXTS)
    while True:
        batch = tokens.recv_pyobj()
        texts.send_pyobj({"rid": batch["rid"], "text": " ".join(map(str, batch["ids"]))})


class TokenizerManager:
    def __init__(self) -> None:
        context = zmq.asyncio.Context()
        self.texts = context.socket(zmq.PULL)
        self.texts.bind(TEXTS)
        self.requests = context.socket(zmq.PUSH)
        self.requests.connect(REQUESTS)
        self.waiting: dict[str, asyncio.Future[str]] = {}

    async def handle_loop(self) -> None:
        while True:
            answer = await self.texts.recv_pyobj()
            self.waiting.pop(answer["rid"]).set_result(answer["text"])

    async def generate(self, rid: str, prompt: str) -> str:
        self.waiting[rid] = asyncio.get_running_loop().create_future()
        await self.requests.send_pyobj({"rid": rid, "prompt": prompt})
        return await self.waiting[rid]


async def serve() -> None:
    manager = TokenizerManager()
    loop = asyncio.create_task(manager.handle_loop())
    print("The server is warming up", flush=True)
    print(await manager.generate("warmup", "The capital city of France is"), flush=True)
    await loop


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=2)
    parser.parse_args()
    first, second = spawn.Pipe()
    spawn.Process(target=run_scheduler, args=(0, first)).start()
    spawn.Process(target=run_scheduler, args=(1, second)).start()
    detokenizer = spawn.Process(target=run_detokenizer)
    detokenizer.start()
    time.sleep(2)
    asyncio.run(serve())


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --tp 2"
# needs = ["zmq", "setproctitle"]
# culprits = [[-1]]
# waiting = [0, 1]
# steps = ["script", "arguments", "engine_ready"]
# after = ["", "Args parsed"]
# own_code = true
# ends = true
# calls = ['^$', 'run', 'generate', 'handle_loop', 'serve', 'recv', 'select']
# causes = ["child-died", "worker-dead", "killed-from-outside"]
# says = ['[Dd]etokenizer', 'SIGKILL|signal 9|killed']
# ///
