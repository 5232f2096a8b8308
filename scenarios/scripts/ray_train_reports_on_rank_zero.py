"""Ray Train: rank 0 alone calls ray.train.report, which waits until every worker has called it;
ranks 1 and 2 are in the next step's all_reduce.

The driver waits for the trainer. As with a collective that one rank makes alone: each waits for
the others.
"""

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train_loop(config: dict[str, int]) -> None:
    model = torch.nn.Linear(4, 1)
    rank = train.get_context().get_world_rank()
    for epoch in range(config["epochs"]):
        loss = model(torch.full((8, 4), float(rank + epoch))).pow(2).mean()
        loss.backward()
        for weight in model.parameters():
            assert weight.grad is not None
            dist.all_reduce(weight.grad)
        if rank == 0:
            train.report({"loss": loss.item(), "epoch": epoch})


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"epochs": 3},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=3),
    )
    print(trainer.fit())

# /// case
# command = "python train.py"
# culprits = [[0], [0, 1, 2], [1, 2]]
# culprits_by_stacks = [[-1]]
# steps = ["process_group", "script", "first_step", "training", "ray_get", "optimizer"]
# after = ["Process group ready", "torch imported", ""]
# own_code = true
# calls = ['report', 'all_reduce', 'barrier', 'train_loop']
# causes = ["ray-train-meets", "rank-conditional-collective", "collective-mismatch", "deadlock"]
# says = ['report']
# needs = ["ray", "pandas"]
# ///
