"""functools.cached_property keeps one lock for all objects of a class, up to Python 3.11.

Rank 2 of four computes the property of its shard in the main thread, and asks its prefetcher for
the next shard meanwhile; the prefetcher's thread wants that same property of the next shard.
"""

import functools
import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist


class Shard:
    """A shard of the data and where its documents begin."""

    prefetcher = ThreadPoolExecutor(1, thread_name_prefix="prefetch")

    def __init__(self, number: int, linked: bool) -> None:
        self.number, self.linked = number, linked
        self.following: Future[list[int]] | None = None

    @functools.cached_property
    def offsets(self) -> list[int]:
        found = [self.number * 100 + n for n in range(5)]
        if self.linked:  # its last document goes on in the next shard
            found.append(self.first_of_next())
        return found

    def first_of_next(self) -> int:
        following = Shard(self.number + 1, linked=False)
        pending = self.prefetcher.submit(lambda: following.offsets)
        time.sleep(0.1)
        return pending.result()[0]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(9):
        shard = Shard(step, linked=rank == 2 and step == 5)
        batch = torch.tensor([float(one) for one in [*shard.offsets, 0][:6]])
        model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "first_step", "first_backward", "ddp_wrap"]
# after = ["First step done", "First backward done", ""]
# own_code = true
# calls = ['result', '__get__', 'cached_property', 'offsets', 'first_of_next', 'train\.main']
# causes = ["self-deadlock", "lock-order", "deadlock", "thread-stuck", "pool-waits-for-itself"]
# ///
