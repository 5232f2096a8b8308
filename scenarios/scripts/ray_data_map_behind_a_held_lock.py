"""Ray Data: a function that is mapped over blocks opens a cache of features under the lock of its
file, which a process outside of the job has; the driver waits in materialize().

Two tasks of the pipeline stand in that lock. The executor of the dataset is a thread of the driver.
"""

import fcntl
import os
import sys
from typing import Any

import ray


class Cache:
    def __init__(self, path: str) -> None:
        self.path = path

    def look_up(self, rows: Any) -> Any:
        with open(self.path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return rows * 2


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    cache = Cache(sys.argv[1])

    def add_features(batch: dict[str, Any]) -> dict[str, Any]:
        batch["feature"] = cache.look_up(batch["id"])
        return batch

    made = ray.data.range(4000, override_num_blocks=8).map_batches(add_features).materialize()
    print(made.count(), "rows", os.getpid(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $LOCK"
# world = "held_lock"
# needs = ["ray", "pyarrow", "pandas"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "ray_init"]
# after = ["Ray started", "Actor asked for", "Answer of Ray there", ""]
# own_code = true
# calls = ['materialize', 'flock', 'look_up', 'add_features']
# causes = ["file-lock-held"]
# says = ['cache\.lock']
# limit = 300
# ///
