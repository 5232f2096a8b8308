"""Ray: an async actor launches three engines and waits for them by a blocking ray.get inside of a
coroutine; each engine registers at that actor before it says that it is up.

The actor's event loop is blocked, so no registration is ever handled: the engines wait for the
server, the server for the engines. The driver waits for the server.
"""

import argparse
import time

import ray


@ray.remote
class Engine:
    def __init__(self, index: int, server: ray.actor.ActorHandle) -> None:
        self.index, self.server = index, server
        self.weights: list[bytearray] = []

    def launch(self) -> str:
        for _ in range(4):
            self.weights.append(bytearray(1 << 20))
        slot = ray.get(self.server.register.remote(self.index, f"10.0.0.{self.index}:8000"))
        return f"engine {self.index} in slot {slot}"

    def generate(self, prompt: str) -> str:
        return f"{prompt} [{self.index}]"


@ray.remote
class RolloutServer:
    def __init__(self, size: int) -> None:
        self.size = size
        self.addresses: dict[int, str] = {}
        self.engines: list[ray.actor.ActorHandle] = []

    async def register(self, index: int, address: str) -> int:
        self.addresses[index] = address
        return len(self.addresses) - 1

    async def launch(self, me: ray.actor.ActorHandle) -> list[str]:
        self.engines = [Engine.remote(index, me) for index in range(self.size)]
        started = time.monotonic()
        said = ray.get([engine.launch.remote() for engine in self.engines])
        print(f"{self.size} engines after {time.monotonic() - started:.1f} s", flush=True)
        return said

    async def generate(self, prompts: list[str]) -> list[str]:
        return [
            await self.engines[at % self.size].generate.remote(prompt)
            for at, prompt in enumerate(prompts)
        ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engines", type=int, default=3)
    args = parser.parse_args()
    ray.init(num_cpus=args.engines + 1, include_dashboard=False)
    server = RolloutServer.options(name="rollouts", max_concurrency=64).remote(args.engines)
    print(ray.get(server.launch.remote(server)), flush=True)
    for _ in range(3):
        print(ray.get(server.generate.remote(["once", "upon", "a", "time"])), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --engines 3"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Args parsed", ""]
# own_code = true
# calls = ['ray\.get', 'launch']
# causes = ["deadlock", "event-loop", "tasks-await-one-another", "ray-loop-blocked"]
# says = ['RolloutServer', 'launch|register']
# needs = ["ray"]
# ///
