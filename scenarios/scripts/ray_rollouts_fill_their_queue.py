"""Ray: three rollout actors put what they play into a ray.util.queue.Queue of 8; the learner, the
driver, waits for all rollouts of the epoch before it takes the first one out of the queue.

The queue is full and the rollouts wait in put() for room; only the driver would take from it, and
it waits for them.
"""

import random

import ray
from ray.util.queue import Queue

EPISODES = 12


@ray.remote
class Rollout:
    def __init__(self, seed: int, queue: Queue) -> None:
        self.random, self.queue = random.Random(seed), queue

    def episode(self) -> list[float]:
        return [self.random.random() for _ in range(64)]

    def epoch(self, policy: list[float]) -> int:
        steps = 0
        for _ in range(EPISODES):
            episode = self.episode()
            self.queue.put(episode)
            steps += len(episode)
        return steps


class Learner:
    def __init__(self) -> None:
        self.policy = [0.0] * 64

    def update(self, episode: list[float]) -> None:
        self.policy = [0.9 * old + 0.1 * new for old, new in zip(self.policy, episode, strict=True)]


def collect(rollouts: list[ray.actor.ActorHandle], policy: list[float]) -> int:
    return sum(ray.get([rollout.epoch.remote(policy) for rollout in rollouts]))


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    queue = Queue(maxsize=8)
    rollouts = [Rollout.options(name=f"rollout-{seed}").remote(seed, queue) for seed in range(3)]
    learner = Learner()
    for epoch in range(5):
        steps = collect(rollouts, learner.policy)
        while not queue.empty():
            learner.update(queue.get())
        print(f"epoch {epoch}: {steps} steps", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['ray\.get', 'collect', 'put', 'epoch']
# causes = ["deadlock", "queue-of-another-full", "ray-task"]
# says = ['Rollout', 'put|epoch']
# needs = ["ray"]
# ///
