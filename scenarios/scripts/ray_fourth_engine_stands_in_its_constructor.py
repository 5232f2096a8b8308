"""Ray: four engines, of which the fourth asks a model registry in its constructor, and that never
answers; the driver waits in ray.get until all four say that they are ready.

The first three are ready and idle. No method of the fourth has begun.
"""

import os
import urllib.request

import ray


@ray.remote
class Engine:
    def __init__(self, number: int, registry: str) -> None:
        self.number, self.adapter = number, b""
        if number == 3:
            self.adapter = self.fetch_adapter(registry)

    def fetch_adapter(self, registry: str) -> bytes:
        with urllib.request.urlopen(f"{registry}/adapters/{self.number}") as answer:
            return answer.read()

    def is_ready(self) -> int:
        return self.number


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    engines = [Engine.remote(number, os.environ["SERVICE"]) for number in range(4)]
    print("ready:", ray.get([engine.is_ready.remote() for engine in engines]), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# world = "silent_service"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['ray\.get', 'Engine', 'fetch_adapter', 'urlopen', 'recv']
# causes = ["endpoint-silent"]
# says = ['Engine|fetch_adapter']
# ///
