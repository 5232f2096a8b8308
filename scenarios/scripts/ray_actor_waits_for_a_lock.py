"""Two actors of Ray: the second waits for a lock before it joins the group of gloo, the driver
waits in ray.get.

The first one waits in the rendezvous for the second, which a stranger's lock keeps.
"""

import fcntl
import sys

import ray
import torch
import torch.distributed as dist


@ray.remote
class Trainer:
    def __init__(self, rank: int, world: int, port: str, cache: str) -> None:
        self.rank, self.world, self.port, self.cache = rank, world, port, cache

    def setup(self) -> None:
        if self.rank == 1:
            self.load_cache()
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{self.port}",
            rank=self.rank,
            world_size=self.world,
        )

    def load_cache(self) -> None:
        with open(self.cache) as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    def train(self) -> float:
        value = torch.ones(1)
        dist.all_reduce(value)
        return float(value)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    trainers = [Trainer.remote(rank, 2, sys.argv[1], sys.argv[2]) for rank in range(2)]
    ray.get([trainer.setup.remote() for trainer in trainers])
    print(ray.get([trainer.train.remote() for trainer in trainers]))

# /// case
# command = "python train.py $PORT $LOCK"
# world = "held_lock"
# culprits = [[1]]
# waiting = [0]
# steps = ["script"]
# after = ["torch imported", ""]
# own_code = true
# calls = ["flock"]
# causes = ["file-lock-held"]
# needs = ["ray"]
# ///
