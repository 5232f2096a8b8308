"""In rank 1 the garbage collector runs a finalizer within the lock that the finalizer takes.

The cache's lock is a plain one: the same thread waits for itself. The others wait in a reduction.
"""

import gc
import threading

import torch
import torch.distributed as dist


class Cache:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sizes: dict[int, int] = {}

    def forget(self, number: int) -> None:
        with self.lock:
            self.sizes.pop(number, None)

    def remember(self, number: int, rank: int) -> "Page":
        with self.lock:
            page = Page(self, number)
            self.sizes[number] = len(page.data)
            if rank == 1 and number == 17:
                gc.collect()
            return page


class Page:
    def __init__(self, cache: Cache, number: int) -> None:
        self.cache, self.number, self.data = cache, number, bytes(1024)
        self.itself = self

    def __del__(self) -> None:
        self.cache.forget(self.number)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    gc.disable()
    cache, total = Cache(), torch.zeros(())
    for number in range(30):
        page = cache.remember(number, rank)
        total += len(page.data)
        dist.all_reduce(total)
    dist.destroy_process_group()


main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["first_all_reduce", "all_reduce", "training"]
# after = ["First all_reduce done"]
# own_code = true
# calls = ["__del__", "forget", "collect", "remember"]
# causes = ["self-deadlock"]
# ///
