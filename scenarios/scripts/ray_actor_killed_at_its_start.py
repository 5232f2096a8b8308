"""The second of two actors of Ray is killed as it starts; the driver waits in ray.get for the
first, which waits for the second in the rendezvous of gloo.
"""

import os
import signal
import sys

import ray
import torch.distributed as dist


@ray.remote
class Trainer:
    def __init__(self, rank: int, world: int, port: str) -> None:
        self.rank, self.world, self.port = rank, world, port
        if rank == 1:  # as the kernel does where memory runs out
            os.kill(os.getpid(), signal.SIGKILL)

    def setup(self) -> int:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{self.port}",
            rank=self.rank,
            world_size=self.world,
        )
        return self.rank


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    trainers = [Trainer.remote(rank, 2, sys.argv[1]) for rank in range(2)]
    asked = [trainer.setup.remote() for trainer in trainers]
    for one in asked:
        print(ray.get(one))

# /// case
# command = "python train.py $PORT"
# culprits = [[1]]
# waiting = [0]
# steps = ["process_group", "script"]
# after = ["torch imported", ""]
# calls = ['init_process_group', '^$']
# causes = ["ray-actor-died"]
# says = ['Trainer \(pid \d+\) died']
# needs = ["ray"]
# ///
