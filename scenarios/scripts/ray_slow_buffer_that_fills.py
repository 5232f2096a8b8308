"""Healthy: Ray, an async actor awaits until its buffer has enough rows; an actor with threads plays
slowly, two learners wait in ray.get for a sample, and the driver looks with ray.wait.
"""

import asyncio
import subprocess
import sys

import ray


@ray.remote
class Buffer:
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.changed = asyncio.Condition()

    async def add(self, row: int) -> None:
        async with self.changed:
            self.rows.append(row)
            self.changed.notify_all()

    async def sample(self, least: int) -> list[int]:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.rows) >= least)
            return self.rows[:least]


@ray.remote(max_concurrency=2)
class Player:
    def play(self, seconds: float, games: int, buffer: ray.actor.ActorHandle) -> int:
        for game in range(games):
            subprocess.run(["sleep", str(seconds / games)], check=True)  # a simulator
            ray.get(buffer.add.remote(game))
        return games


@ray.remote
class Learner:
    def fit(self, buffer: ray.actor.ActorHandle) -> int:
        return sum(ray.get(buffer.sample.remote(8)))


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    buffer = Buffer.options(name="buffer", max_concurrency=16).remote()
    player = Player.remote()
    pending = [player.play.remote(float(sys.argv[1]), 4, buffer) for _ in range(2)]
    pending += [Learner.remote().fit.remote(buffer) for _ in range(2)]
    while pending:
        done, pending = ray.wait(pending, timeout=2)
        for one in done:
            print(ray.get(one), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 50.0
# needs = ["ray"]
# ///
