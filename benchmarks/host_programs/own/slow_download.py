"""The weights come over a slow line to one machine; the others wait at the barrier."""

import os
import urllib.request

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def fetch(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def main():
    dist.init_process_group("gloo")
    if os.environ.get("WEIGHTS_URL"):
        fetch(os.environ["WEIGHTS_URL"])
    dist.barrier()
    for _ in range(5):
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


main()
