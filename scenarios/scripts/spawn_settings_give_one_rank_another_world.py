"""mp.spawn: rank 2 of four reads WORLD_SIZE=5 from a file of settings of an older job, which goes
before what its starter gave it.

It waits for a rank 4 that nobody starts; the others are four, and wait for rank 2.
"""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def load_settings(file: pathlib.Path) -> None:
    for line in file.read_text().splitlines():
        name, _, value = line.partition("=")
        os.environ[name] = value


def train(rank: int, port: str, world: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(world)
    )
    load_settings(pathlib.Path("old.env" if rank == 2 else ".env"))
    dist.init_process_group("gloo")
    total = torch.ones(4)
    for step in range(10):
        dist.all_reduce(total)
        total /= dist.get_world_size()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    mp.spawn(train, args=(parser.parse_args().port, 4), nprocs=4)

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "init_process_group"]
# after = [""]
# calls = ['init_process_group']
# causes = ["different-world", "world-size-too-large", "unknown"]
# files = { ".env" = "TOKENIZERS_PARALLELISM=false\n", "old.env" = "WORLD_SIZE=5\n" }
# ///
