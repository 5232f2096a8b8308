"""The proxy in the environment accepts, and never says a word: rank 0 downloads through it."""

import urllib.request

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        urllib.request.urlretrieve("http://data.example.org/train.bin", "train.bin")
    dist.barrier()
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "silent_proxy"
# culprits = [[0]]
# waiting = [1]
# steps = ["training", "prepare_data", "data_module", "process_group", "barrier", "first_barrier"]
# after = ["Process group ready"]
# own_code = true
# calls = ['urllib\.request\.url']
# ///
