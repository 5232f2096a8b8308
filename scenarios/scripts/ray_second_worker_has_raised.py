"""Ray: three workers with a group of gloo; the driver waits for their answers in their order, and
the second worker's training has raised an exception before its all_reduce.

Its exception lies in the object store, where nobody looks before the first worker has answered. The
worker itself is alive and idle; workers 0 and 2 wait for it in all_reduce.
"""

import sys

import ray
import torch
import torch.distributed as dist

WORLD = 3


@ray.remote
class Worker:
    def __init__(self, rank: int, port: str) -> None:
        self.rank, self.port = rank, port

    def setup(self) -> int:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{self.port}",
            rank=self.rank,
            world_size=WORLD,
        )
        self.model = torch.nn.Linear(4, 1)
        return self.rank

    def load_shard(self) -> torch.Tensor:
        rows = [[1.0, 2.0, 3.0, 4.0]] * 8
        if self.rank == 1:
            rows[5] = [1.0, 2.0, 3.0]  # a line of the file was cut short
        return torch.tensor(rows)

    def fit(self) -> float:
        loss = self.model(self.load_shard()).pow(2).mean()
        loss.backward()
        for weight in self.model.parameters():
            dist.all_reduce(weight.grad)
        return loss.item()


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False)
    workers = [Worker.remote(rank, sys.argv[1]) for rank in range(WORLD)]
    ray.get([worker.setup.remote() for worker in workers])
    asked = [worker.fit.remote() for worker in workers]
    for rank, one in enumerate(asked):
        print(f"worker {rank}: {ray.get(one):.3f}", flush=True)

# /// case
# command = "python train.py $PORT"
# culprits = [[1]]
# culprits_by_stacks = [[-1]]
# waiting = [0, 2]
# steps = ["process_group", "script", "ray_get"]
# after = ["Process group ready", "torch imported", ""]
# own_code = true
# calls = ['^$', 'fit', 'main_loop', 'Worker']
# causes = ["ray-task", "rank-conditional-collective", "swallowed-exception", "rank-left"]
# says = ['fit|ValueError|raised|exception|idle|asked|next call']
# needs = ["ray"]
# ///
