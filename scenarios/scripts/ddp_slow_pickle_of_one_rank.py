"""Healthy and silent: all_gather_object; what rank 2 of four hands in is read from a slow store as
it is pickled, the others are in the first gather of the call.
"""

import argparse
import time

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


class Report:
    """What a rank has seen; rows that are on the store come with it."""

    def __init__(self, rank: int) -> None:
        self.rank, self.rows = rank, None

    def __getstate__(self):
        if self.rank == 2:
            time.sleep(args.seconds)
        return {"rank": self.rank, "rows": [self.rank] * 4}


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for epoch in range(3):
        reports = [None] * world
        dist.all_gather_object(reports, Report(rank) if epoch == 1 else epoch)
    print(rank, len(reports), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
