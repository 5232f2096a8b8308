"""Healthy: rank 3 of four is a spare, and waits for the end of a training of the three others.

They have a group of their own, and take half a second a step.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()
SPARE = 3


def train(group: dist.ProcessGroup) -> torch.Tensor:
    model = DistributedDataParallel(torch.nn.Linear(32, 32), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.zeros(())
    for step in range(int(args.seconds * 2)):
        loss = model(torch.randn(8, 32)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.5)  # the rest of the work of a step
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    return loss.detach()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workers = dist.new_group([0, 1, 2])
    last = torch.zeros(()) if dist.get_rank() == SPARE else train(workers)
    dist.broadcast(last, src=0)  # the spare hears that nobody needs it any more
    print(f"rank {dist.get_rank()}: {last.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
