"""A driver waits for a placement group of Ray until a task has given its cores back: healthy."""

import sys
import time

import ray
from ray.util.placement_group import placement_group


@ray.remote(num_cpus=2)
def prepare(seconds: float) -> int:
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        count += sum(range(10000))
    return count


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    ahead = prepare.remote(float(sys.argv[1]))
    time.sleep(1.0)
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    ray.get(group.ready())
    print(ray.get(ahead) > 0)

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 40.0
# needs = ["ray"]
# ///
