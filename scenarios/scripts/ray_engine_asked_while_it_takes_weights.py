"""Ray: the learner tells an engine to take its weights, asks the engine for its version, and sends
the weights after that. The engine, an actor, does one thing at a time.

The engine waits in a broadcast of gloo for the learner, rank 0 of that group, which waits in
ray.get for the engine: each for the other. The learner is also an actor; the driver waits for it.
"""

import sys

import ray
import torch
import torch.distributed as dist


def join(rank: int, port: str) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)


@ray.remote
class Engine:
    def __init__(self) -> None:
        self.model, self.version = torch.nn.Linear(8, 8), 0

    def join(self, port: str) -> None:
        join(1, port)

    def take_weights(self) -> int:
        for weight in self.model.parameters():
            dist.broadcast(weight.data, src=0)
        self.version += 1
        return self.version

    def current_version(self) -> int:
        return self.version


@ray.remote
class Learner:
    def __init__(self, engine: ray.actor.ActorHandle) -> None:
        self.model, self.engine = torch.nn.Linear(8, 8), engine

    def join(self, port: str) -> None:
        join(0, port)

    def send_weights(self) -> int:
        taken = self.engine.take_weights.remote()
        version = ray.get(self.engine.current_version.remote())
        print(f"from version {version}")
        for weight in self.model.parameters():
            dist.broadcast(weight.data, src=0)
        return ray.get(taken)

    def train(self, steps: int) -> int:
        version = 0
        for _ in range(steps):
            self.model(torch.ones(4, 8)).sum().backward()
            version = self.send_weights()
        return version


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    engine = Engine.remote()
    learner = Learner.remote(engine)
    ray.get([engine.join.remote(sys.argv[1]), learner.join.remote(sys.argv[1])])
    print(ray.get(learner.train.remote(3)))

# /// case
# command = "python train.py $PORT"
# culprits = [[0, 1], [0], []]
# culprits_by_stacks = [[-1]]
# steps = ["ray_get", "process_group", "broadcast", "script"]
# after = [
#   "Ray started", "Process group ready", "Answer of Ray there",
#   "torch imported", "First backward done", "",
# ]
# own_code = true
# calls = ['ray\.get', 'send_weights', 'take_weights', 'broadcast']
# causes = ["deadlock"]
# says = ['Engine']
# needs = ["ray"]
# ///
