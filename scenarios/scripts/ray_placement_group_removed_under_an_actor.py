"""Ray: a trainer, an actor, is handed a placement group and waits until its bundles are there,
again and again; the driver has taken it for too large meanwhile and has removed it.

The driver waits in ray.get for the trainer to be ready, a rollout actor is idle.
"""

import time

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)


@ray.remote(num_cpus=0)
class Trainer:
    def prepare(self, group: PlacementGroup) -> str:
        while placement_group_table(group)["state"] != "CREATED":
            time.sleep(1)
        return "ready"


@ray.remote(num_cpus=1)
class Rollout:
    def version(self) -> int:
        return 0


def choose_group(trainer: "ray.actor.ActorHandle[Trainer]") -> "ray.ObjectRef[str]":
    group = placement_group([{"CPU": 2}] * 2)
    ready = trainer.prepare.remote(group)
    if not group.wait(timeout_seconds=3):
        remove_placement_group(group)
    return ready


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    rollout, trainer = Rollout.remote(), Trainer.remote()
    print(ray.get(rollout.version.remote()), flush=True)
    print(ray.get(choose_group(trainer)), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "placement_group"]
# after = ["Ray started", "Placement group asked for", "Answer of Ray there", "Actor asked for", ""]
# own_code = true
# calls = ['ray\.get', 'sleep', 'prepare']
# causes = ["ray-placement", "polling-loop", "ray-task", "unknown"]
# says = ['Trainer']
# ///
