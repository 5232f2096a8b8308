"""mp.spawn: rank 3 of five makes the vocabulary and tells its place by the store, misnamed.

It goes on to the first all_reduce; the others wait for the name that they know. No variable of the
environment says where the store is: it is rank 0's.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 5


def find_vocabulary(rank: int) -> str:
    store = dist.distributed_c10d._get_default_store()
    if rank == 3:
        time.sleep(1.0)
        store.set("vocabulary/v2", "words.txt")
        return "words.txt"
    store.wait(["vocabulary/v1"])
    return store.get("vocabulary/v1").decode()


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    name = find_vocabulary(rank)
    for step in range(5):
        total = torch.ones(4) * len(name)
        dist.all_reduce(total)
        print(f"rank {rank} step {step}: {total[0].item():.0f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    mp.spawn(train, args=(parser.parse_args().port,), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[3]]
# culprits_by_stacks = [[]]
# steps = [
#   "process_group", "training", "steady", "first_collective", "all_reduce", "first_all_reduce",
# ]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['all_reduce', 'train\.train', 'train$']
# causes = ["store-key-missing", "rank-conditional-collective"]
# ///
