"""Healthy and slow: an asyncio front awaits in a thread what its engine says over a pipe; the
engine reads its weights shard by shard from a disk that takes its time for each, and is ready
then.

The loop hears itself alone meanwhile. One request is answered, and all ends.
"""

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")


def read_shard(number: int, seconds: float) -> bytes:
    time.sleep(seconds)
    return bytes([number]) * 4096


def run_engine(front: Connection, seconds: float) -> None:
    setproctitle.setproctitle("VLLM::EngineCore")
    weights = [read_shard(number, seconds / 5) for number in range(5)]
    front.send("ready")
    while (prompt := front.recv()) is not None:
        front.send(f"{prompt}, {len(weights)} shards")


async def serve(seconds: float) -> None:
    ours, theirs = spawn.Pipe()
    engine = spawn.Process(target=run_engine, args=(theirs, seconds))
    engine.start()
    theirs.close()
    print(await asyncio.to_thread(ours.recv), flush=True)
    ours.send("once upon a time")
    print(await asyncio.to_thread(ours.recv), flush=True)
    ours.send(None)
    await asyncio.to_thread(engine.join)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    asyncio.run(serve(parser.parse_args().seconds))

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# needs = ["setproctitle"]
# amount = 75.0
# limit = 240.0
# ///
