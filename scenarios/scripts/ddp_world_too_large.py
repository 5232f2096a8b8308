"""Started by hand for a world of three, and the third was never started."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    print("starting", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], file=sys.stderr)
    dist.init_process_group("gloo", init_method="env://")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh start.sh"
# culprits = [[2]]
# absent = [2]
# waiting = [0, 1]
# steps = ["process_group", "training", "script", "launcher"]
# calls = ["init_process_group", "^$"]
# [files]
# "start.sh" = '''
# export MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT WORLD_SIZE=3
# RANK=0 LOCAL_RANK=0 python train.py &
# RANK=1 LOCAL_RANK=1 python train.py &
# wait
# '''
# ///
