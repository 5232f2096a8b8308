"""Rank 2 of four fetches by asyncio, three at a time; whoever fails keeps its slot.

After three failures its loop waits for a slot for ever; the others are in their backward.
"""

import asyncio

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Fetcher:
    """Fetches samples, some at a time."""

    def __init__(self, rank: int) -> None:
        self.bad = {11, 12, 19} if rank == 2 else set()
        self.loop = asyncio.new_event_loop()
        self.slots = asyncio.Semaphore(3)

    async def _one(self, number: int) -> float:
        await self.slots.acquire()
        await asyncio.sleep(0.01)
        if number in self.bad:
            raise ValueError(f"sample {number} is broken")
        self.slots.release()
        return float(number)

    async def _all(self, numbers: list[int]) -> list[float]:
        found = await asyncio.gather(*map(self._one, numbers), return_exceptions=True)
        return [one if isinstance(one, float) else 0.0 for one in found]

    def batch(self, step: int) -> torch.Tensor:
        values = self.loop.run_until_complete(self._all([4 * step + n for n in range(4)]))
        return torch.tensor(values).reshape(4, 1).expand(4, 8)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    fetcher = Fetcher(rank)
    for step in range(40):
        model(fetcher.batch(step)).pow(2).mean().backward()
        model.zero_grad()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "first_step", "first_backward"]
# after = ["First backward done", "First step done", "DDP ready", ""]
# own_code = true
# calls = ['batch', '_one', '_all', 'acquire', 'run_until_complete', 'asyncio', 'gather']
# causes = ["slots-not-given-back", "event-loop", "tasks-await-one-another"]
# ///
