"""Ray: rollout workers are async actors; before each generation they await that the weights are
fresh. The learner tells the first two of three so, for it counts from an older list of workers.

The driver gathers the three answers in asyncio; the third worker's loop is idle.
"""

import asyncio

import ray


@ray.remote
class RolloutWorker:
    def __init__(self, number: int) -> None:
        self.number, self.version = number, 0
        self.fresh = asyncio.Event()

    async def set_version(self, version: int) -> None:
        self.version = version
        self.fresh.set()

    async def generate(self, prompts: list[str]) -> list[str]:
        await self.fresh.wait()
        return [f"{prompt} ({self.version})" for prompt in prompts]


async def roll_out(workers: list[ray.actor.ActorHandle]) -> list[list[str]]:
    return await asyncio.gather(*(one.generate.remote(["2 + 2 ="]) for one in workers))


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    workers = [RolloutWorker.remote(number) for number in range(2)]
    known = list(workers)
    workers.append(RolloutWorker.remote(2))  # a third one was added later
    ray.get([worker.set_version.remote(1) for worker in known])
    print(asyncio.run(roll_out(workers)), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Answer of Ray there", ""]
# own_code = true
# calls = ['generate', 'roll_out', 'run', 'gather']
# says = ['generate|RolloutWorker']
# ///
