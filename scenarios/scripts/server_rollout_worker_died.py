"""Rank 0 asks its engine for rollouts over ZeroMQ; one of the engine's two workers was killed at
the first request, and the engine waits for its part in a queue. Rank 1 is at a barrier.

The engine is a child of rank 0 and the dead worker a child of the engine, which does not look
whether it lives: what ended it all is the kill, two processes away from the rank that waits.
"""

import subprocess
import sys

import torch
import torch.distributed as dist
import zmq


def rollouts(port: int) -> object:
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.send_pyobj(["once upon a time", "there was"])
    return socket.recv_pyobj()


def main() -> None:
    port = int(sys.argv[1])
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        subprocess.Popen([sys.executable, "engine.py", str(port)])
        print(rollouts(port), flush=True)
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py $PORT"
# needs = ["zmq"]
# culprits = [[0], [-1]]
# waiting = [1]
# steps = ["process_group", "barrier"]
# after = ["Process group ready"]
# own_code = true
# ends = true
# calls = ['recv', 'rollouts', 'get', '^$']
# causes = ["child-died", "worker-dead", "worker-killed", "killed-from-outside", "pipe-writer-gone"]
# says = ['SIGKILL|signal 9']
# [files]
# "engine.py" = '''
# """An engine of two workers, each of which answers its share of the prompts."""
# import multiprocessing
# import os
# import signal
# import sys
#
# import zmq
#
#
# def worker(number, prompts, parts):
#     while True:
#         prompt = prompts.get()
#         if number == 1:
#             os.kill(os.getpid(), signal.SIGKILL)
#         parts.put((number, prompt.upper()))
#
#
# def main():
#     context = multiprocessing.get_context("fork")
#     prompts, parts = [context.SimpleQueue() for _ in range(2)], context.SimpleQueue()
#     for number in range(2):
#         context.Process(target=worker, args=(number, prompts[number], parts)).start()
#     front = zmq.Context.instance().socket(zmq.REP)
#     front.bind(f"tcp://127.0.0.1:{sys.argv[1]}")
#     while True:
#         for one, prompt in zip(prompts, front.recv_pyobj()):
#             one.put(prompt)
#         front.send_pyobj([parts.get() for _ in prompts])
#
#
# main()
# '''
# ///
