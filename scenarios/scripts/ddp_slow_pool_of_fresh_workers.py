"""Healthy: rank 2 of four packs its shards by an executor whose workers come of a forkserver, each
of which waits for a program that compresses; a callback counts what is done.
"""

import multiprocessing
import subprocess
import sys
from concurrent.futures import Future, ProcessPoolExecutor, wait

import torch
import torch.distributed as dist

DONE: list[int] = []


def pack(shard: int, seconds: float) -> int:
    subprocess.run(["sleep", str(seconds)], check=True)  # a compressor
    return shard * 2


def count(future: "Future[int]") -> None:
    DONE.append(future.result())


def pack_all(shards: int, seconds: float) -> None:
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        asked = [pool.submit(pack, shard, 2 * seconds / shards) for shard in range(shards)]
        for one in asked:
            one.add_done_callback(count)
        wait(asked)


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 2:
        pack_all(6, float(sys.argv[1]))
    dist.barrier()
    dist.all_reduce(torch.tensor(sum(DONE)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
