"""Ray: a learner asks a sampler for a batch, and the sampler, an async actor, asks the learner's
weight store and answers meanwhile. The store takes its time for each; slow, and nothing hangs.
"""

import argparse
import asyncio
import time

import ray


@ray.remote
class Store:
    def weights(self, seconds: float) -> float:
        time.sleep(seconds)  # from a disk far away
        return 0.5


@ray.remote
class Sampler:
    def __init__(self, store: ray.actor.ActorHandle) -> None:
        self.store = store

    async def batch(self, seconds: float) -> list[float]:
        weight = await self.store.weights.remote(seconds)
        await asyncio.sleep(0.1)
        return [weight] * 4


@ray.remote
class Learner:
    def __init__(self, sampler: ray.actor.ActorHandle) -> None:
        self.sampler = sampler

    def fit(self, steps: int, seconds: float) -> float:
        total = 0.0
        for _ in range(steps):
            total += sum(ray.get(self.sampler.batch.remote(seconds / steps)))
        return total


def main(seconds: float) -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    learner = Learner.remote(Sampler.remote(Store.remote()))
    print(ray.get(learner.fit.remote(2, seconds)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    main(parser.parse_args().seconds)

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 50.0
# limit = 240.0
# needs = ["ray"]
# ///
