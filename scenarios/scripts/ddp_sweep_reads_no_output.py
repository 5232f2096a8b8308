"""A sweep counts its processors by torch, starts torchrun for each trial with its output in a pipe,
and waits for its end before it reads: rank 0 of three fills the pipe with its log.
"""

import os
import subprocess
import sys

import torch
import torch.distributed as dist


class Sweep:
    def __init__(self, rates: list[float]) -> None:
        self.rates, self.threads = rates, min(1, torch.get_num_threads())

    def start(self, rate: float) -> int:
        words = ["torchrun", "--standalone", "--nproc_per_node=3", sys.argv[0], str(rate)]
        own = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        trial = subprocess.Popen(words, stdout=subprocess.PIPE, env=own, text=True)
        if trial.wait():
            raise SystemExit(trial.returncode)
        return len(trial.stdout.readlines())

    def run(self) -> None:
        for rate in self.rates:
            print(rate, self.start(rate), flush=True)


def train(rate: float) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(4000):
        loss = torch.tensor([rate * step])
        dist.all_reduce(loss)
        if rank == 0:
            print(f"step {step:6} loss {loss.item():12.4f} rate {rate:10.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(float(sys.argv[1]))
    else:
        Sweep([0.1, 0.01]).run()

# /// case
# command = "python train.py"
# culprits = [[0]]
# waiting = [1, 2]
# steps = ["training", "collectives", "first_all_reduce", "script"]
# after = ["First all_reduce done", ""]
# own_code = true
# calls = ['print', 'train', 'write', 'all_reduce']
# causes = ["pipe-unread"]
# ///
