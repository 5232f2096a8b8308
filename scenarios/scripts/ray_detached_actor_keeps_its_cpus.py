"""Ray: an engine of an earlier run is a detached actor, which has three of the node's four
processors and outlives the program that made it; the trainer's new engine wants two, and its
driver waits.

The earlier program has ended well; the detached engine is idle.
"""

import subprocess
import sys

import ray

EARLIER = """
import sys
import ray

@ray.remote(num_cpus=3)
class Engine:
    def ready(self):
        return "ready"

ray.init(address=sys.argv[1], namespace="serving", log_to_driver=False)
engine = Engine.options(name="engine", lifetime="detached").remote()
print(ray.get(engine.ready.remote()), flush=True)
"""


@ray.remote(num_cpus=2)
class Engine:
    def __init__(self, layers: int) -> None:
        self.layers = layers

    def load(self) -> int:
        return self.layers


def main() -> None:
    context = ray.init(num_cpus=4, include_dashboard=False)
    address = context.address_info["gcs_address"]
    subprocess.run([sys.executable, "-c", EARLIER, address], check=True)  # last night's
    engine = Engine.remote(12)
    print("layers:", ray.get(engine.load.remote()), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['ray\.get']
# causes = ["ray-placement"]
# says = ['Engine']
# limit = 300
# ///
