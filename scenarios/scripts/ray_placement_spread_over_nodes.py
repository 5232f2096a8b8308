"""A driver waits for a placement group of Ray that is to lie on two nodes, and there is one.

All that is asked for is there; STRICT_SPREAD wants each bundle on a node of its own.
"""

import ray
from ray.util.placement_group import placement_group


def reserve() -> object:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    while not group.wait(timeout_seconds=30):
        print("Waiting for creating a placement group", flush=True)
    return group


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    print(reserve())

# /// case
# command = "python train.py"
# culprits = [[0]]
# steps = ["placement_ready", "placement_group", "script"]
# after = ["Ray started", "Placement group asked for"]
# own_code = true
# calls = ['PlacementGroup\.wait', 'placement_group', 'ray\.wait']
# causes = ["ray-placement"]
# needs = ["ray"]
# ///
