"""A lock in the TCPStore: rank 2 of four takes it, meets a bad shard, and never gives it back.

The others look for the lock in the store again and again; rank 2 is in the barrier behind.
"""

import contextlib
import time

import torch
import torch.distributed as dist


class StoreLock:
    """A lock that all ranks share: a key of the store that is free, or has a rank's number."""

    def __init__(self, store: dist.Store, name: str) -> None:
        self.store, self.name = store, name

    def take(self) -> None:
        own = str(dist.get_rank())
        while self.store.compare_set(self.name, "free", own) != own.encode():
            time.sleep(0.3)

    def give_back(self) -> None:
        self.store.set(self.name, "free")


def append_to_index(lock: StoreLock, lines: list[str]) -> int:
    """Append a shard's lines to the index that all ranks share."""
    lock.take()
    kept = [int(line) for line in lines]
    lock.give_back()
    return len(kept)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("index", "free")
    dist.barrier()
    lock, written = StoreLock(store, "index"), 0
    for shard in range(3):
        bad = rank == 2 and shard == 1
        if not bad:
            time.sleep(1)  # reads its lines; those of the bad shard are few
        with contextlib.suppress(ValueError):
            written += append_to_index(lock, ["12", "n/a"] if bad else ["12", "15"])
        dist.barrier()
        print(f"rank {rank} shard {shard}: {written}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 3], []]
# steps = [
#   "process_group", "training", "barrier", "first_barrier",
# ]
# after = ["First barrier done", "Barrier passed", "Process group ready", ""]
# own_code = true
# calls = ['barrier', 'take', 'append_to_index', 'compare_set', 'sleep', 'train\.main']
# causes = [
#   "deadlock", "rank-conditional-collective", "polling-loop", "uneven-rounds", "own-code-sleeps",
#   "unknown",
# ]
# ///
