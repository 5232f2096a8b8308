"""Healthy and slow: four of six ranks wait for a key that rank 0 sets once rank 1 has written.

Ranks 0 and 1 are a group of two, and rank 0 waits in its sum; rank 1 writes a line now and then.
"""

import argparse
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    pair = dist.new_group([0, 1])
    if rank == 1:
        with open("vocabulary.txt", "w") as file:
            for part in range(5):
                time.sleep(args.seconds / 5)
                file.write(f"part {part}\n")
                file.flush()
    if rank < 2:
        done = torch.ones(1)
        dist.all_reduce(done, group=pair)
    if rank == 0:
        store.set("vocabulary", "vocabulary.txt")
    store.wait(["vocabulary"])
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"rank {rank}: {total.item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=6 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 300.0
# ///
