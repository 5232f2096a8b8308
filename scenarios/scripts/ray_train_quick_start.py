"""Ray Train with two workers of gloo trains a little and ends."""

import os

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


def loop() -> None:
    model = prepare_model(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    value = torch.ones(1)
    dist.all_reduce(value)
    train.report({"sum": float(value)})


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=os.path.abspath("results")),
    )
    trainer.fit()
    print("trained")

# /// case
# command = "python train.py"
# outcome = "ok"
# needs = ["ray", "pyarrow", "pandas"]
# ///
