"""Rank 0 of three uploads a report by requests with retries that back off, to a port nobody serves.

Each try is refused at once, and the next one comes later and later: for hours in all.
"""

import os

import requests
import torch
import torch.distributed as dist
from requests.adapters import HTTPAdapter
from torch.nn.parallel import DistributedDataParallel
from urllib3.util.retry import Retry


def upload(report: dict[str, float]) -> None:
    retries = Retry(total=200, backoff_factor=1.0, backoff_max=120, allowed_methods=None)
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retries))
        session.post(f"http://127.0.0.1:{os.environ['PORT']}/report", json=report)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    for step in range(40):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        model.zero_grad()
        if rank == 0 and step == 20:
            upload({"loss": loss.item()})
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[0]]
# waiting = [1, 2]
# steps = ["training", "steady", "first_step", "first_backward"]
# after = ["First backward done", "First step done", ""]
# own_code = true
# calls = ['upload', 'post', 'sleep', 'requests', 'urlopen', 'Retry']
# causes = ["service-retries", "retry-loop", "endpoint-unreachable", "service-unreachable"]
# ///
