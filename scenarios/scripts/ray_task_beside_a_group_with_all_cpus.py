"""Ray: a placement group for the trainers has all processors of the cluster; the driver waits in
ray.get for a task of its own that it did not put into the group.

The group is there and idle, the task wants one processor and there is none outside of the group.
"""

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def setup(self) -> int:
        return self.rank

    def fit(self, shard: list[int]) -> int:
        return sum(shard)


@ray.remote(num_cpus=1)
def tokenize(texts: list[str]) -> list[list[int]]:
    return [[ord(letter) for letter in text] for text in texts]


def prepare() -> list[list[int]]:
    return ray.get(tokenize.remote(["once upon a time", "there was"]))


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    group = placement_group([{"CPU": 1}] * 2, strategy="PACK")
    ray.get(group.ready())
    inside = PlacementGroupSchedulingStrategy(placement_group=group)
    trainers = [Trainer.options(scheduling_strategy=inside).remote(rank) for rank in range(2)]
    print(ray.get([trainer.setup.remote() for trainer in trainers]), flush=True)
    shards = prepare()
    print(ray.get([one.fit.remote(shard) for one, shard in zip(trainers, shards, strict=True)]))

# /// case
# command = "python train.py"
# culprits = [[0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Placement group asked for", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get', 'prepare']
# causes = ["ray-placement"]
# says = ['tokenize', 'CPU']
# needs = ["ray"]
# ///
