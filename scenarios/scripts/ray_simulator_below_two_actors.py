"""Ray, actors within actors: the driver waits for the trainer, the trainer for its rollout manager,
the manager for its two simulators; the second simulator asks a licence server that never answers.
"""

import sys
import urllib.request

import ray


@ray.remote(num_cpus=0.5)
class Simulator:
    def __init__(self, number: int, licences: str) -> None:
        self.number, self.licences = number, licences

    def check_out(self) -> bytes:
        with urllib.request.urlopen(f"{self.licences}/simulator/{self.number}") as answer:
            return bytes(answer.read())

    def episode(self, seed: int) -> list[int]:
        if self.number == 1:
            self.check_out()
        return [(seed * step) % 7 for step in range(16)]


@ray.remote(num_cpus=0.5)
class RolloutManager:
    def __init__(self, licences: str) -> None:
        self.simulators = [Simulator.remote(number, licences) for number in range(2)]

    def collect(self, seed: int) -> list[list[int]]:
        episodes = [one.episode.remote(seed) for one in self.simulators]
        found: list[list[int]] = ray.get(episodes)
        return found


@ray.remote(num_cpus=0.5)
class Trainer:
    def __init__(self, licences: str) -> None:
        self.manager = RolloutManager.remote(licences)

    def fit(self, rounds: int) -> int:
        reward = 0
        for seed in range(rounds):
            reward += sum(map(sum, ray.get(self.manager.collect.remote(seed))))
        return reward


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    print(ray.get(Trainer.remote(sys.argv[1]).fit.remote(3)))

# /// case
# command = "python train.py $SERVICE"
# world = "silent_service"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['urlopen', 'check_out', 'episode', 'recv', 'readinto', 'ray\.get']
# causes = ["endpoint-silent", "service-silent"]
# says = ["Simulator", "check_out|urlopen|episode"]
# needs = ["ray"]
# ///
