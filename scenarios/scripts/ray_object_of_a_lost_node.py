"""Ray: the weights were made by a task on a node with "disk"; the node's raylet is killed, as where
a spot machine is taken back. Ray would make them again, where "disk" is, and that is nowhere.

The driver waits in ray.get for a scorer, whose task wants the weights and so does not begin.
"""

import os
import signal

import ray
from ray.cluster_utils import Cluster


@ray.remote(resources={"disk": 1}, max_retries=-1)
def load_weights(size: int) -> bytes:
    return bytes(size)


@ray.remote(num_cpus=1, resources={"head": 1})
def score(weights: bytes) -> int:
    return len(weights)


def main() -> None:
    cluster = Cluster()
    cluster.add_node(num_cpus=2, resources={"head": 1}, include_dashboard=False)
    spot = cluster.add_node(num_cpus=1, resources={"disk": 1})
    ray.init(address=cluster.address)
    weights = load_weights.remote(8 << 20)
    ray.wait([weights], fetch_local=False)
    for started in spot.all_processes["raylet"]:
        os.kill(started.process.pid, signal.SIGKILL)
        started.process.wait()
    print("score:", ray.get(score.remote(weights)), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "ray_init"]
# after = ["Ray started", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get']
# causes = ["ray-placement"]
# says = ['disk']
# limit = 300
# ///
