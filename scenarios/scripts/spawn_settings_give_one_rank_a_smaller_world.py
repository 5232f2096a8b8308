"""mp.spawn: rank 1 of four reads how many ranks there are from its own list of hosts, which is an
old one and has three.
"""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def count_hosts(file: pathlib.Path) -> int:
    return sum(bool(line.strip()) for line in file.read_text().splitlines())


def train(rank: int, port: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    hosts = pathlib.Path("hosts.old" if rank == 1 else "hosts")
    dist.init_process_group("gloo", rank=rank, world_size=count_hosts(hosts))
    total = torch.ones(4)
    for step in range(10):
        dist.all_reduce(total)
        total /= dist.get_world_size()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    mp.spawn(train, args=(parser.parse_args().port,), nprocs=4)

# /// case
# command = "python train.py --port $PORT"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["process_group", "init_process_group", "training", "first_all_reduce", "all_reduce"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['init_process_group', 'all_reduce']
# causes = ["different-world", "unknown"]
# files = { "hosts" = "n1\nn2\nn3\nn4\n", "hosts.old" = "n1\nn2\nn3\n" }
# ///
