"""Training that looks which shards are there, in the folder that the cluster shares."""

import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def list_shards():
    names = [f"/tmp/shared/shard-{number:03}.tar" for number in range(14)]
    return [name for name in names if os.path.exists(name)]


def main():
    dist.init_process_group("gloo")
    shards = list_shards()
    counts = torch.tensor([float(len(shards))])
    for _ in range(20):
        dist.all_reduce(counts)
        counts /= dist.get_world_size()
    dist.destroy_process_group()


main()
