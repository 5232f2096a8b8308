"""Rank 1's statistics are pickled under their lock, and their flusher keeps it until it may write.

It may write once the statistics of all have been gathered, which rank 1 is about to pickle for.
"""

import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Statistics:
    def __init__(self, rows: dict[str, float] | None = None) -> None:
        self.rows = rows or {}
        self.lock = threading.Lock()
        self.gathered = threading.Event()

    def flush(self, path: str) -> None:
        with self.lock:
            self.gathered.wait()
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{self.rows}\n")

    def __reduce__(self) -> tuple[type, tuple[dict[str, float]]]:
        with self.lock:
            return Statistics, (dict(self.rows),)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    mine = Statistics()
    for step in range(4):
        loss = model(torch.randn(4, 16)).pow(2).mean()
        loss.backward()
        mine.rows[f"loss/{step}"] = loss.item()
        if len(mine.rows) == 3 and rank == 1:
            flusher = threading.Thread(target=mine.flush, args=("rows.txt",), name="flusher")
            flusher.start()
    everybody: list[Statistics | None] = [None] * world
    dist.all_gather_object(everybody, mine)
    mine.gathered.set()
    if rank == 0:
        print([one.rows for one in everybody if one], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["first_all_gather_object", "all_gather_object", "training", "steady", "first_backward"]
# after = ["First backward done", ""]
# own_code = true
# calls = ['all_gather_object', '__reduce__']
# causes = ["deadlock", "thread-stuck"]
# limit = 300
# ///
