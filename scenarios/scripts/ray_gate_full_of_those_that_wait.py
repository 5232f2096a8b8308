"""Ray: two actors wait at a gate, an async actor that lets two calls in at a time, until a third
actor opens it. Its call is the third, and stays in the queue.

The gate's two places are taken by those that await its event; the driver waits for all three. The
loop of the gate is idle.
"""

import asyncio

import ray


@ray.remote(max_concurrency=2)
class Gate:
    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def wait_until_open(self) -> bool:
        return await self.opened.wait()

    async def open_gate(self) -> None:
        self.opened.set()


@ray.remote
class Learner:
    def __init__(self, gate: ray.actor.ActorHandle) -> None:
        self.gate, self.weights = gate, [0.0] * 16

    def fit(self) -> float:
        ray.get(self.gate.wait_until_open.remote())
        return sum(self.weights)


@ray.remote
class Loader:
    def __init__(self, gate: ray.actor.ActorHandle) -> None:
        self.gate = gate

    def load(self, parts: int) -> int:
        loaded = sum(range(parts))
        ray.get(self.gate.open_gate.remote())
        return loaded


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    gate = Gate.remote()
    learners = [Learner.remote(gate) for _ in range(2)]
    started = [learner.fit.remote() for learner in learners]
    ray.wait(started, timeout=5)  # until both are at the gate
    loader = Loader.remote(gate)
    loaded = loader.load.remote(8)
    print(ray.get([*started, loaded]), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get', 'fit', 'load', 'wait_until_open', 'open_gate']
# causes = ["ray-task", "deadlock", "unknown"]
# says = ['Gate|wait_until_open|open_gate']
# needs = ["ray"]
# ///
