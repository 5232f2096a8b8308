"""Rank 1 of three evaluates in a helper thread for a long time, which computes; healthy.

The others wait for the result in a broadcast, which a helper thread of theirs does, too.
"""

import argparse
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


def evaluate(seconds: float) -> float:
    end, count, digest = time.monotonic() + seconds, 0, b""
    while time.monotonic() < end:
        digest = hashlib.pbkdf2_hmac("sha256", digest, b"salt", 20_000)
        count += 1
    return float(count > 0)


def share_score(rank: int, seconds: float) -> float:
    score = torch.tensor(evaluate(seconds) if rank == 1 else 0.0)
    dist.broadcast(score, src=1)
    return score.item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    with ThreadPoolExecutor(1) as helper:
        score = helper.submit(share_score, dist.get_rank(), args.seconds).result()
    print(f"score {score}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 30.0
# limit = 200.0
# ///
