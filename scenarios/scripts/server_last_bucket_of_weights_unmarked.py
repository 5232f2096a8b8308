"""A trainer sends new weights to its engine in buckets by ZeroMQ, and marks as the last one a
bucket that is not full; the last one is full by chance, and the engine waits for another.

Rank 0 asks the engine for a rollout then and waits for its answer, by another socket; the engine's
two workers wait for the next bucket. Rank 1 of the trainer waits in a barrier for rank 0.
"""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
import zmq

BUCKET = 1 << 16  # bytes
WORKERS = 2


class Engine:
    def __init__(self) -> None:
        context = zmq.Context.instance()
        self.process = subprocess.Popen([sys.executable, "engine.py"])
        self.asks = context.socket(zmq.REQ)
        self.asks.bind("ipc://ask.sock")
        self.buckets = [context.socket(zmq.PAIR) for _ in range(WORKERS)]
        for number, one in enumerate(self.buckets):
            one.bind(f"ipc://weights{number}.sock")
            assert one.recv_string() == "ready"

    def update_weights(self, weights: torch.Tensor) -> None:
        data = weights.numpy().tobytes()
        for start in range(0, len(data), BUCKET):
            bucket = data[start : start + BUCKET]
            is_last = len(bucket) < BUCKET
            for one in self.buckets:
                one.send_multipart([b"last" if is_last else b"more", bucket])

    def generate(self, prompt: str) -> str:
        self.asks.send_string(prompt)
        return self.asks.recv_string()


def main() -> None:
    dist.init_process_group("gloo")
    engine = Engine() if dist.get_rank() == 0 else None
    for size in (20_000, 30_000, 32_768):  # floats: with the third the buckets are full
        dist.barrier()
        if engine is not None:
            engine.update_weights(torch.ones(size))
            print(engine.generate(f"rollout {size}"), os.getpid(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# needs = ["zmq", "setproctitle"]
# culprits = [[0]]
# waiting = [1]
# steps = ["process_group", "script"]
# after = ["Process group ready", "Barrier passed", ""]
# own_code = true
# calls = ['recv', 'generate', 'take_weights']
# says = ['Worker|take_weights|rollout']
# [files]
# "engine.py" = '''
# """An engine of two workers: weights come to each, a prompt to all."""
# import multiprocessing
#
# import setproctitle
# import zmq
#
#
# def take_weights(socket):
#     size = 0
#     while True:
#         mark, bucket = socket.recv_multipart()
#         size += len(bucket)
#         if mark == b"last":
#             return size
#
#
# def work(number, prompts, texts):
#     setproctitle.setproctitle(f"rollout::Worker_TP{number}")
#     socket = zmq.Context.instance().socket(zmq.PAIR)
#     socket.connect(f"ipc://weights{number}.sock")
#     socket.send_string("ready")
#     while True:
#         size = take_weights(socket)
#         texts.put(f"{prompts.get()} after {size} bytes")
#
#
# def main():
#     spawn = multiprocessing.get_context("spawn")
#     queues = [(spawn.Queue(), spawn.Queue()) for _ in range(2)]
#     for number, pair in enumerate(queues):
#         spawn.Process(target=work, args=(number, *pair), daemon=True).start()
#     asked = zmq.Context.instance().socket(zmq.REP)
#     asked.connect("ipc://ask.sock")
#     while True:
#         prompt = asked.recv_string()
#         for prompts, _ in queues:
#             prompts.put(prompt)
#         asked.send_string([texts.get() for _, texts in queues][0])
#
#
# if __name__ == "__main__":
#     main()
# '''
# ///
