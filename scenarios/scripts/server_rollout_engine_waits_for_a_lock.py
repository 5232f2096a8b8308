"""Rank 0 spawned a rollout engine and reads its ready pipe; the engine waits for the lock on the
weights' cache, which a process outside of the job has. Rank 1 is at the barrier after that.

The engine has no rank's variables of its own but those that it inherits of rank 0, and joins no
group: it is the one that stands still, and rank 0 waits for it. Rank 1 waits for rank 0.
"""

import fcntl
import multiprocessing
import os
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist


class RolloutEngine:
    def __init__(self, answers: Connection) -> None:
        self.answers = answers

    def load_weights(self) -> torch.Tensor:
        with open(os.environ["LOCK"], "w") as cache:
            fcntl.flock(cache, fcntl.LOCK_EX)
            return torch.zeros(4)

    def serve(self) -> None:
        weights = self.load_weights()
        self.answers.send("ready")
        while True:
            self.answers.send(weights + self.answers.recv())


def run_engine(answers: Connection) -> None:
    RolloutEngine(answers).serve()


def start_engine() -> Connection:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    context.Process(target=run_engine, args=(theirs,), name="rollout-engine", daemon=True).start()
    theirs.close()
    return ours


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        engine = start_engine()
        assert engine.recv() == "ready"
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "held_lock"
# culprits = [[0]]
# waiting = [1]
# steps = ["process_group", "barrier"]
# after = ["Process group ready"]
# own_code = true
# calls = ['flock', 'load_weights', 'recv']
# causes = ["file-lock-held"]
# says = ['cache\.lock']
# ///
