"""Ranks meet in the TCPStore: who comes last sets the key, and rank 4 of six never comes.

Each rank counts itself with store.add() once its part of the cache is written. Rank 4 has no part,
and returns before it does so: it is in the first all_reduce when the others wait for the key.
"""

import time
from pathlib import Path

import torch
import torch.distributed as dist


def meet(store: dist.Store, name: str, world: int) -> None:
    if store.add(f"{name}/arrived", 1) == world:
        store.set(f"{name}/go", "1")
    store.wait([f"{name}/go"])


def write_cache(rank: int, world: int, store: dist.Store) -> int:
    documents = [n for n in range(20) if n % world == rank and rank != 4]
    if not documents:
        return 0
    time.sleep(0.3)
    Path(f"cache-{rank}.txt").write_text("\n".join(map(str, documents)))
    meet(store, "cache", world)
    return len(documents)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    count = torch.tensor(write_cache(rank, world, store))
    dist.all_reduce(count)
    print(f"rank {rank}: {count.item()} documents", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=6 train.py"
# culprits = [[4]]
# culprits_by_stacks = [[]]
# steps = [
#   "process_group", "training", "steady", "first_collective", "all_reduce", "first_all_reduce",
# ]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['all_reduce', 'train\.main']
# causes = ["rank-conditional-collective", "deadlock", "uneven-rounds", "store-key-missing"]
# ///
