"""torch.distributed.elastic as a library: a scheduler script starts an agent for a job of two nodes
and hands it the training function; the second node's agent is never started.

The agent waits in the rendezvous; no rank was started.
"""

import os
import sys

import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def train(steps: int) -> int:
    dist.init_process_group("gloo")
    for _ in range(steps):
        dist.barrier()
    return dist.get_rank()


def main() -> None:
    config = LaunchConfig(
        min_nodes=2,
        max_nodes=2,
        nproc_per_node=2,
        run_id="sweep-7",
        rdzv_backend="c10d",
        rdzv_endpoint=f"localhost:{os.environ['PORT']}",
        start_method="spawn",
    )
    print(elastic_launch(config, train)(int(sys.argv[1])), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py 3"
# culprits = [[0], [-1], [2, 3], []]
# absent = [0, 1, 2, 3]
# steps = ["script", "rendezvous"]
# after = ["torch imported", ""]
# own_code = true
# calls = ['rendezvous', 'launch', 'next_rendezvous', 'elastic', '^$']
# says = ['node|rendezvous']
# ///
