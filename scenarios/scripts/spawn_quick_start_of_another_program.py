"""A wrapper that checks torch and becomes the training program (exec), which spawns its ranks."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank: int, port: str) -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"[rank{rank}] {total.item():.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--train" not in sys.argv:
        print("torch", torch.__version__, flush=True)
        os.execv(sys.executable, [sys.executable, *sys.argv, "--train"])
    mp.spawn(main, args=(sys.argv[1],), nprocs=2)

# /// case
# command = "python train.py $PORT"
# outcome = "ok"
# ///
