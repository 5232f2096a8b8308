"""A script's engine is killed in its first step, as where memory runs out; its two workers live on
as orphans, each waits for its next word, and the script for the engine's answer.

The queues have both ends in each worker, so none of them is told that the engine is gone. The
workers are whole: between them and the script is the one that died.
"""

import argparse
import multiprocessing
import os
import signal
from typing import Any

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")


def run_worker(rank: int, port: int, words: Any, answers: Any) -> None:
    setproctitle.setproctitle(f"textserve::Worker_TP{rank}")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    answers.put((rank, "ready"))
    while (word := words.get()) is not None:
        value = torch.full((1,), float(len(word)))
        dist.all_reduce(value)
        answers.put((rank, value.item()))


class EngineCore:
    def __init__(self, port: int) -> None:
        self.words = [spawn.Queue() for _ in range(2)]
        self.answers = spawn.Queue()
        for rank, one in enumerate(self.words):
            spawn.Process(target=run_worker, args=(rank, port, one, self.answers)).start()
        for _ in self.words:
            self.answers.get()
        self.swapped: list[bytes] = []

    def step(self, prompt: str) -> float:
        for one in self.words:
            one.put(prompt)
        total = sum(float(self.answers.get()[1]) for _ in self.words)
        self.swap_out(total)
        return total

    def swap_out(self, total: float) -> None:
        self.swapped.append(b"x" * (1 << 20))
        if total > 100:  # nothing is left of the machine's memory
            os.kill(os.getpid(), signal.SIGKILL)


def run_engine(port: int) -> None:
    setproctitle.setproctitle("textserve::EngineCore")
    socket = zmq.Context.instance().socket(zmq.PAIR)
    socket.connect("ipc://engine.sock")
    core = EngineCore(port)
    socket.send_string("ready")
    while True:
        socket.send_string(str(core.step(socket.recv_string())))


class LLM:
    def __init__(self, port: int) -> None:
        self.socket = zmq.Context.instance().socket(zmq.PAIR)
        self.socket.bind("ipc://engine.sock")
        spawn.Process(target=run_engine, args=(port,), name="EngineCore").start()
        assert self.socket.recv_string() == "ready"

    def generate(self, prompt: str) -> str:
        self.socket.send_string(prompt)
        return self.socket.recv_string()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    llm = LLM(parser.parse_args().port)
    for prompt in ("once", "once upon", "once upon a time " * 8):
        print(llm.generate(prompt), flush=True)

# /// case
# command = "python train.py --port $PORT"
# needs = ["zmq", "setproctitle"]
# culprits = [[-1]]
# culprits_by_stacks = [[0]]
# waiting = [0, 1]
# steps = ["script", "arguments", "process_group", "import_torch"]
# after = ["", "Args parsed", "torch imported", "First all_reduce done"]
# own_code = true
# ends = true
# calls = ['recv', 'generate', 'get', '^$']
# causes = ["child-died", "worker-dead", "killed-from-outside", "rank-died", "dead-producer"]
# says = ['SIGKILL|signal 9']
# ///
