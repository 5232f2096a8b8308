"""Ray: a task that may be retried without a limit is killed each time in its middle, as by the
guard of a node's memory; Ray starts it again and again, and the driver waits in ray.get.

The other three tasks are done. Between two tries a worker process is started.
"""

import os
import signal
import time

import ray


@ray.remote(max_retries=-1)
def preprocess(shard: int) -> int:
    time.sleep(1)
    if shard == 2:  # larger than what the node has
        os.kill(os.getpid(), signal.SIGKILL)
    return shard * 100


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    done = ray.get([preprocess.remote(shard) for shard in range(4)])
    print(f"{sum(done)} rows", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# ends = true
# calls = ['ray\.get', 'preprocess']
# causes = ["restarted-in-vain", "ray-actor-died"]
# says = ['preprocess']
# limit = 300
# ///
