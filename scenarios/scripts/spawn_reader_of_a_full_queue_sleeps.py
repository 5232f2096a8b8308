"""Three actors fill a queue of eight samples; the learner, rank 0, backs off for an hour.

It takes a loss that is not a number for a fault of the machine, and waits for somebody to look.
"""

import time

import torch
import torch.multiprocessing as mp


def learn(samples: "mp.Queue") -> None:
    weight = torch.zeros(4)
    for _ in range(1000):
        loss = (weight - torch.tensor(samples.get())).square().sum()
        if torch.isnan(loss):
            time.sleep(3600)
        weight += 0.01 * loss


def act(rank: int, samples: "mp.Queue") -> None:
    for step in range(1000):
        value = float("nan") if rank == 2 and step == 20 else float(step)
        samples.put([value] * 4)


def work(rank: int, samples: "mp.Queue") -> None:
    torch.set_num_threads(1)
    if rank == 0:
        learn(samples)
    else:
        act(rank, samples)


def main() -> None:
    samples = mp.get_context("spawn").Queue(8)
    mp.spawn(work, args=(samples,), nprocs=4)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0]]
# waiting = [1, 2, 3]
# steps = ["arguments", "training", "ranks_started"]
# after = ["", "Args parsed", "torch imported"]
# own_code = true
# calls = ["sleep", "learn"]
# causes = ["own-code-sleeps"]
# ///
