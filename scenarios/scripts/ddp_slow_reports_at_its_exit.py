"""Healthy and slow: all three ranks have trained; the executor of rank 1 reports at its exit.

The service takes a report now and then only, so each waits its time; Python joins that thread.
"""

import argparse
import concurrent.futures
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()
REPORTERS = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="reporter")


def report(number: int, loss: float) -> None:
    time.sleep(args.seconds / 4)  # no more than so many a minute
    with open("reports.txt", "a") as file:
        file.write(f"{number} {loss:.3f}\n")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(20):
        loss = torch.rand(1)
        dist.all_reduce(loss)
        if rank == 1 and step % 5 == 0:
            REPORTERS.submit(report, step, loss.item())
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} is done", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 300.0
# ///
