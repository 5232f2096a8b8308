"""A training whose ranks meet by a file, as --dist-url says; /tmp/rendezvous is to be shared."""

import argparse
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist-url", default="file:///tmp/rendezvous/job-17")
    parser.add_argument("--steps", type=int, default=20)
    return parser.parse_args()


def main():
    options = parse()
    os.makedirs("/tmp/rendezvous", exist_ok=True)
    dist.init_process_group(
        "gloo",
        init_method=options.dist_url,
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    model = torch.nn.Linear(8, 1)
    for _ in range(options.steps):
        model.zero_grad()
        model(torch.randn(4, 8)).mean().backward()
        dist.all_reduce(model.weight.grad)
    dist.destroy_process_group()


main()
