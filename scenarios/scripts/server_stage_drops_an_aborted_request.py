"""A server of three pipeline stages that hand on hidden states by gloo; a request was aborted, and
the second stage drops it where the first has sent it: the third waits for it, the first for its
token.

Each stage is a process of its own with a title; the front waits for the texts in a pipe. The second
stage waits for the next request of the front's.
"""

import argparse
import multiprocessing
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")
STAGES = 3


class Stage:
    def __init__(self, number: int, port: int) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        self.number, self.torch, self.dist = number, torch, dist
        self.aborted: set[int] = set()
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=STAGES
        )

    def recv_states(self) -> "torch.Tensor":  # noqa: F821
        states = self.torch.zeros(8)
        self.dist.recv(states, src=self.number - 1)
        return states

    def recv_token(self) -> float:
        token = self.torch.zeros(1)
        self.dist.recv(token, src=STAGES - 1)
        return float(token)

    def forward(self, request: int) -> float | None:
        states = self.torch.full((8,), float(request)) if self.number == 0 else self.recv_states()
        if request in self.aborted:
            return None
        if self.number < STAGES - 1:
            self.dist.send(states + 1, dst=self.number + 1)
        else:
            self.dist.send(states.sum().reshape(1), dst=0)
        return self.recv_token() if self.number == 0 else None


def run_stage(number: int, port: int, asked: Connection, texts: Connection) -> None:
    setproctitle.setproctitle(f"pipeserve::Stage_PP{number}")
    stage = Stage(number, port)
    while True:
        request, aborts = asked.recv()
        stage.aborted |= set(aborts)
        token = stage.forward(request)
        if number == 0:
            texts.send(f"request {request}: {token}")


def main(port: int) -> None:
    texts, theirs = spawn.Pipe()
    asks = []
    for number in range(STAGES):
        ours, asked = spawn.Pipe()
        own = (number, port, asked, theirs)
        spawn.Process(target=run_stage, args=own, daemon=True).start()
        asks.append(ours)
    for request in range(6):
        for number, one in enumerate(asks):
            # The client of request 3 has gone; who hears of it first is not the first stage.
            one.send((request, [3] if number == 1 and request == 3 else []))
        print(texts.recv(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("serve",))
    parser.add_argument("--port", type=int, required=True)
    main(parser.parse_args().port)

# /// case
# command = "python -m train serve --port $PORT"
# needs = ["setproctitle"]
# culprits = [[1]]
# culprits_by_stacks = [[-1]]
# waiting = [0, 2]
# steps = ["script", "arguments", "process_group", "import_torch", "first_recv", "first_send"]
# after = ["", "Args parsed", "torch imported", "Process group ready", "First send done"]
# own_code = true
# calls = ['recv', 'run_stage', 'forward', '^$']
# says = ['Stage_PP1|rank 1']
# ///
