"""A driver waits for a placement group of Ray with two GPUs, and the node has one.

Ray waits for a node that could take it, as long as nobody ends it.
"""

import ray
from ray.util.placement_group import placement_group


def reserve() -> object:
    group = placement_group([{"GPU": 1, "CPU": 1}, {"GPU": 1, "CPU": 1}], strategy="PACK")
    ray.get(group.ready())
    return group


if __name__ == "__main__":
    ray.init(num_cpus=4, num_gpus=1, include_dashboard=False)
    print(reserve())

# /// case
# command = "python train.py"
# culprits = [[0]]
# steps = ["ray_get", "placement_group", "script"]
# after = ["Ray started", "Placement group asked for"]
# own_code = true
# calls = ['ray\.get', 'placement_group']
# causes = ["ray-placement"]
# says = ['GPU', '\b2\b', '\b1\b']
# needs = ["ray"]
# ///
