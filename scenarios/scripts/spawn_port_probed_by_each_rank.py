"""mp.spawn: each of four ranks looks for the first free port by itself; rank 2 comes late.

By then rank 0 listens at that port, so rank 2 takes the next one, and tries to reach a store there.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


def first_free_port(start: int) -> int:
    for port in range(start, start + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def train(rank: int, start: int) -> None:
    torch.set_num_threads(1)
    if rank == 2:
        time.sleep(8.0)  # reads its configuration from a slow disk
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(first_free_port(start))
    if rank == 0:
        time.sleep(4.0)  # makes its folders
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    total = torch.ones(4)
    dist.all_reduce(total)
    print(f"rank {rank}: {total.sum().item():.0f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    mp.spawn(train, args=(parser.parse_args().port,), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "init_process_group"]
# after = [""]
# calls = ['init_process_group', 'TCPStore', '_create_c10d_store']
# causes = ["different-master", "store-not-reached", "rendezvous-unreachable"]
# ///
