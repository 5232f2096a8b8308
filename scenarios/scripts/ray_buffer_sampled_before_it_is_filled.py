"""Ray: four learners with a group of gloo and a replay buffer that does one thing at a time. The
third learner asks the buffer for a sample, and the buffer waits in that call until it has enough.

What is to be added waits behind that call in the buffer's queue. The other learners wait for the
third one in all_reduce, the players for the buffer.
"""

import sys
import threading

import ray
import torch
import torch.distributed as dist

WORLD = 4


@ray.remote
class ReplayBuffer:
    def __init__(self, least: int) -> None:
        self.least, self.rows = least, []
        self.filled = threading.Condition()

    def add(self, row: list[float]) -> int:
        with self.filled:
            self.rows.append(row)
            self.filled.notify_all()
            return len(self.rows)

    def sample(self) -> list[float]:
        with self.filled:
            while len(self.rows) < self.least:
                self.filled.wait()
            return self.rows[-1]


@ray.remote
class Player:
    def play(self, buffer: ray.actor.ActorHandle, games: int) -> int:
        return max(ray.get([buffer.add.remote([float(game)] * 4) for game in range(games)]))


@ray.remote
class Learner:
    def __init__(self, rank: int, port: str, buffer: ray.actor.ActorHandle) -> None:
        self.rank, self.port, self.buffer = rank, port, buffer
        self.model = torch.nn.Linear(4, 1)

    def setup(self) -> None:
        address = f"tcp://127.0.0.1:{self.port}"
        dist.init_process_group("gloo", init_method=address, rank=self.rank, world_size=WORLD)

    def batch(self, step: int) -> torch.Tensor:
        if step % WORLD == self.rank:
            return torch.tensor(ray.get(self.buffer.sample.remote()))
        return torch.ones(4)

    def fit(self, steps: int) -> float:
        loss = torch.zeros(1)
        for step in range(2, 2 + steps):
            loss = self.model(self.batch(step)).pow(2)
            loss.sum().backward()
            for weight in self.model.parameters():
                dist.all_reduce(weight.grad)
        return float(loss.sum())


if __name__ == "__main__":
    ray.init(num_cpus=6, include_dashboard=False)
    buffer = ReplayBuffer.remote(16)
    learners = [Learner.remote(rank, sys.argv[1], buffer) for rank in range(WORLD)]
    ray.get([learner.setup.remote() for learner in learners])
    fitted = [learner.fit.remote(20) for learner in learners]
    ray.wait(fitted, num_returns=1, timeout=2)
    played = Player.remote().play.remote(buffer, 100)
    print(ray.get([played, *fitted]), flush=True)

# /// case
# command = "python train.py $PORT"
# culprits = [[2], [-1]]
# waiting = [0, 1, 3]
# steps = ["ray_get", "process_group", "script", "first_all_reduce", "first_collective"]
# after = ["Process group ready", "torch imported", ""]
# own_code = true
# calls = ['ray\.get', 'batch', 'sample', 'wait']
# causes = ["ray-task", "deadlock", "thread-stuck", "signal-wait"]
# says = ['ReplayBuffer|sample']
# needs = ["ray"]
# ///
