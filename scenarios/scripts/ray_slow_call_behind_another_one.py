"""Healthy: a driver waits long in ray.get for a short call of an actor that is busy with a long
one, which another actor has asked for; the busy one sleeps between its steps (the accelerator).
"""

import sys
import time

import ray


@ray.remote
class Engine:
    def __init__(self) -> None:
        self.tokens = 0

    def generate(self, tokens: int, seconds: float) -> int:
        for _ in range(tokens):
            time.sleep(seconds / tokens)  # the accelerator
            self.tokens += 1
        return self.tokens

    def count(self) -> int:
        return self.tokens


@ray.remote
class Rollouts:
    def __init__(self, engine: ray.actor.ActorHandle) -> None:
        self.engine = engine

    def collect(self, seconds: float) -> int:
        return int(ray.get(self.engine.generate.remote(8, seconds)))


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    engine = Engine.remote()
    rollouts = Rollouts.remote(engine)
    asked = rollouts.collect.remote(float(sys.argv[1]))
    ray.wait([asked], timeout=5)
    print(ray.get(engine.count.remote()), ray.get(asked))

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# needs = ["ray"]
# ///
