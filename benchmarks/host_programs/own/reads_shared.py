"""Training that looks up a curriculum in the folder that the cluster shares, every few steps."""

import json
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)
FOLDER = "/tmp/shared"


def read_curriculum(step):
    path = f"{FOLDER}/curriculum-{step // 3}.json"
    if not os.path.exists(path):
        return {"length": 16}
    with open(path) as file:
        return json.load(file)


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(16, 16)
    curriculum = {"length": 16}
    for step in range(1, 31):
        if step % 3 == 0:
            curriculum = read_curriculum(step)
        model.zero_grad()
        model(torch.randn(curriculum["length"], 16)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
    dist.destroy_process_group()


main()
