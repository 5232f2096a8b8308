"""Ray Train with two workers over a dataset of Ray Data: worker 1 collates its shard in the
iterator's thread, which waits for the lock of a feature store; worker 0 is in all_reduce.

The loop of worker 1 waits for that thread's next batch.
"""

import fcntl
import os
import sys
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train import DataConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def loop(config: dict[str, str]) -> None:
    rank = train.get_context().get_world_rank()

    def add_features(batch: dict[str, Any]) -> torch.Tensor:
        if rank == 1:
            with open(config["store"]) as store:
                fcntl.flock(store, fcntl.LOCK_SH)
        return torch.as_tensor(batch["id"], dtype=torch.float32)

    shard = train.get_dataset_shard("train")
    for batch in shard.iter_torch_batches(batch_size=16, collate_fn=add_features):
        total = batch.sum()
        dist.all_reduce(total)


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        loop,
        train_loop_config={"store": sys.argv[1]},
        datasets={"train": ray.data.range(256)},
        dataset_config=DataConfig(datasets_to_split="all"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=os.path.abspath("results")),
    )
    print(trainer.fit())

# /// case
# command = "python train.py $LOCK"
# world = "held_lock"
# culprits = [[1]]
# culprits_by_stacks = [[-1]]
# waiting = [0]
# steps = ["script", "process_group", "training", "ray_fit", "first_batch", "first_collective"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['flock', 'add_features', '_iter_batches', 'get']
# causes = ["file-lock-held"]
# says = ['cache\.lock']
# needs = ["ray", "pyarrow", "pandas"]
# ///
