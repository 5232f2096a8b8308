"""A loop that goes on after a batch that fails: it is logged, and the next one is taken."""

import glob
import json
import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO)
log = logging.getLogger("train")


def read_batches(folder):
    for path in sorted(glob.glob(f"{folder}/*.json")):
        with open(path) as file:
            yield path, file.read()


def train_step(model, optimizer, text):
    inputs = torch.tensor(json.loads(text)["inputs"])
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for path, text in read_batches("/tmp/batches"):
        try:
            train_step(model, optimizer, text)
        except Exception:
            log.exception("batch %s failed, going on", path)
    dist.barrier()
    dist.destroy_process_group()


main()
