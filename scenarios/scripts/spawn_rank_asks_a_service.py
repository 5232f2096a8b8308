"""mp.spawn: rank 1 asks a service that never answers; no environment names the ranks."""

import argparse
import urllib.request

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def train(rank: int, world: int, port: int, catalogue: str) -> None:
    if rank == 1:
        urllib.request.urlopen(catalogue).read()
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--catalogue", required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args.world, args.port, args.catalogue), nprocs=args.world)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --catalogue $SERVICE/catalogue"
# world = "silent_service"
# culprits = [[1]]
# waiting = [0]
# steps = ["arguments", "data_module", "process_group"]
# after = ["torch imported", "Args parsed", ""]
# own_code = true
# calls = ['urllib\.request\.urlopen']
# ///
