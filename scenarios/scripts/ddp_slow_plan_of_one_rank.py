"""Healthy and silent: dcp.async_save in a group of its own; the plan of rank 1 of three takes long,
and all wait for their futures.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Planner(DefaultSavePlanner):
    def create_local_plan(self):
        if dist.get_rank() == 1:
            time.sleep(args.seconds)
        return super().create_local_plan()


def main() -> None:
    dist.init_process_group("cpu:gloo")
    savers = dist.new_group(backend="gloo")
    weights = torch.zeros(64)
    for _ in range(5):
        dist.all_reduce(weights)
    state = {f"part.{dist.get_rank()}": weights}
    saved = dcp.async_save(state, checkpoint_id="last", planner=Planner(), process_group=savers)
    for _ in range(5):
        dist.all_reduce(weights)
    saved.result()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
