"""A training whose ranks read the features of a service, by its name, before the first step."""

import urllib.request

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def read_features():
    with urllib.request.urlopen("http://features.internal:9350/all", timeout=600) as answer:
        return torch.tensor([float(word) for word in answer.read().split()])


def main():
    dist.init_process_group("gloo")
    features = read_features()
    for step in range(5):
        loss = (features * step).sum()
        dist.all_reduce(loss)
    dist.destroy_process_group()


main()
