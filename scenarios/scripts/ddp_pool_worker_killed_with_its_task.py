"""Rank 1 of three packs its documents with a multiprocessing.Pool of three, whose workers are
replaced after two tasks each; one worker is killed in the middle of a task, as if memory ran out.

The pool starts another worker, but what the killed one was working on is lost: rank 1 waits in
Pool.map for ever. Ranks 0 and 2 have nothing to pack and wait at the barrier.
"""

import multiprocessing
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist


def pack(shard: int) -> int:
    document = bytearray(1 << 18)
    for at in range(0, len(document), 4096):
        document[at] = shard % 251
    if shard == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return sum(document)


def pack_missing(shards: int, done: Path) -> None:
    fork = multiprocessing.get_context("forkserver")
    with fork.Pool(3, maxtasksperchild=2) as pool:
        sizes = pool.map(pack, range(shards), chunksize=1)
    done.write_text("\n".join(map(str, sizes)))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    done = Path(f"packed-{rank}.txt")
    if rank != 1:
        done.write_text("0")
    if not done.exists():
        pack_missing(20, done)
    dist.barrier()
    total = torch.tensor([float(line) for line in done.read_text().split()]).sum()
    dist.all_reduce(total)
    print(float(total), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group", "barrier", "pool_map", "first_collective"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['map', 'pack_missing', 'Pool', 'wait']
# causes = ["pool-worker-lost", "worker-killed", "worker-dead", "child-died", "killed-from-outside"]
# ///
