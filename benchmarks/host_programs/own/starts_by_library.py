"""A scheduler's script that starts a function on machines by torch's elastic launcher."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def train(steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for _ in range(steps):
        loss = torch.ones(1)
        dist.all_reduce(loss)
    rank = dist.get_rank()
    dist.destroy_process_group()
    return rank


def main():
    nodes = int(sys.argv[1])
    config = LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=1,
        run_id="sweep-11",
        rdzv_backend="c10d",
        rdzv_endpoint="n1:29400",
        start_method="spawn",
    )
    print(elastic_launch(config, train)(20), flush=True)


if __name__ == "__main__":
    main()
