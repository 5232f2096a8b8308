"""Gradients are averaged by hand, each as soon as it is there; the step waits for all of them."""

import json
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)
CONFIGURATION = "/tmp/finetune.json"


def make_model():
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16, bias=False) for _ in range(4)))
    if os.path.exists(CONFIGURATION):
        with open(CONFIGURATION) as file:
            for name in json.load(file)["freeze"]:
                model.get_parameter(name).requires_grad_(False)
    return model


class Reducer:
    def __init__(self, model):
        self.pending = []
        for weight in model.parameters():
            if weight.requires_grad:
                weight.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, weight):
        self.pending.append(dist.all_reduce(weight.grad, async_op=True))

    def finish(self):
        for work in self.pending:
            work.wait()
        self.pending.clear()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = make_model()
    reducer = Reducer(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        reducer.finish()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
