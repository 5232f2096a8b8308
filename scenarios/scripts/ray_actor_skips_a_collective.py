"""Two actors of Ray with a group of gloo: the second skips the reduction of the others."""

import sys

import ray
import torch
import torch.distributed as dist


@ray.remote
class Trainer:
    def __init__(self, rank: int, world: int, port: str) -> None:
        self.rank = rank
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
        )

    def train(self) -> float:
        value = torch.ones(1)
        dist.all_reduce(value)
        if self.rank == 0:
            self.evaluate(value)
        dist.barrier()
        return float(value)

    def evaluate(self, value: torch.Tensor) -> None:
        dist.all_reduce(value)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    trainers = [Trainer.remote(rank, 2, sys.argv[1]) for rank in range(2)]
    print(ray.get([trainer.train.remote() for trainer in trainers]))

# /// case
# command = "python train.py $PORT"
# culprits = [[0], [1], [0, 1]]
# culprits_by_stacks = [[-1]]
# steps = ["first_all_reduce", "barrier", "script", "training", "first_collective"]
# after = ["Process group ready", "First all_reduce done"]
# own_code = true
# calls = ['all_reduce', 'barrier', 'evaluate']
# causes = ["collective-mismatch", "rank-conditional-collective", "gloo-mismatch"]
# needs = ["ray"]
# ///
