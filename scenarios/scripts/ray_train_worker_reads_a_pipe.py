"""Ray Train with two workers of gloo: in its loop the second reads a named pipe that nobody opens,
the first is in all_reduce.

The loop runs in a thread of a worker; its main thread is in Ray's main_loop.
"""

import os
import sys

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def read_shard(path: str) -> str:
    with open(path) as file:
        return file.read()


def loop(config: dict[str, str]) -> None:
    if train.get_context().get_world_rank() == 1:
        read_shard(config["feed"])
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        loop,
        train_loop_config={"feed": sys.argv[1]},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=os.path.abspath("results")),
    )
    print(trainer.fit())

# /// case
# command = "python train.py $FIFO"
# world = "unopened_fifo"
# culprits = [[1]]
# culprits_by_stacks = [[-1]]
# waiting = [0]
# steps = ["script", "process_group", "training", "ray_fit"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['open']
# causes = ["pipe-no-writer"]
# needs = ["ray", "pyarrow", "pandas"]
# ///
