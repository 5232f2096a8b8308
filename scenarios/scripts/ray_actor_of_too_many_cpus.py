"""A driver waits in ray.get for an actor that wants eight processors, and the node has two.

The actor is never created: no process of it is there.
"""

import ray


@ray.remote(num_cpus=8)
class Loader:
    def load(self) -> int:
        return 1


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    print(ray.get(Loader.remote().load.remote()))

# /// case
# command = "python train.py"
# culprits = [[0]]
# steps = ["ray_get", "script"]
# after = ["Ray started"]
# own_code = true
# calls = ['ray\.get']
# causes = ["ray-placement"]
# says = ['CPU', '\b8\b', '\b2\b']
# needs = ["ray"]
# ///
