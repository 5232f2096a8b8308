"""The head of the cluster keeps a store for the jobs; ranks make their group with that store."""

import datetime
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def connect():
    host, _, port = os.environ["CLUSTER_STORE"].partition(":")
    store = dist.TCPStore(host, int(port), is_master=False, timeout=datetime.timedelta(minutes=30))
    return dist.PrefixStore("job-118", store)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=connect(), rank=rank, world_size=world)
    weights = torch.zeros(8)
    for _ in range(10):
        gradient = torch.randn(8)
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient / world
    dist.barrier()
    dist.destroy_process_group()


main()
