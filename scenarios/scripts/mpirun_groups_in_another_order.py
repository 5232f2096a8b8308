"""mpirun: rank 1 makes the two groups in the other order, as it lists its own neighbours.

`new_group` must be called by all ranks in the same order.
"""

import argparse
import os

import torch
import torch.distributed as dist

PIPELINE = ([0, 1], [1, 2])


def neighbours(rank: int) -> list[list[int]]:
    """The links of the pipeline, the one to the next stage first where there are two."""
    own = [link for link in PIPELINE if rank in link]
    rest = [link for link in PIPELINE if rank not in link]
    if len(own) > 1:
        return sorted(own, key=max, reverse=True) + rest
    return [*PIPELINE]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    args = parser.parse_args()
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    world = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=world
    )
    groups = {tuple(link): dist.new_group(link) for link in neighbours(rank)}
    activations = torch.randn(4, 16)
    for link, group in sorted(groups.items()):
        if rank in link:
            dist.broadcast(activations, src=link[0], group=group)
    dist.barrier()
    print(f"rank {rank}: the pipeline is filled", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = """mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 python train.py \
# --port $PORT"""
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = ["new_group", "process_group"]
# calls = ['distributed\.new_group']
# causes = ["group-on-some-ranks", "collective-mismatch"]
# ///
