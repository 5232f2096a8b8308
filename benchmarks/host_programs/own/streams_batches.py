"""A training whose batches are fetched by coroutines, some ahead of the step that needs them."""

import asyncio
from pathlib import Path

import torch
import torch.distributed as dist

torch.set_num_threads(1)


class Prefetcher:
    """Has an event for each batch, set once it is there."""

    def __init__(self, names):
        self.names = names
        self.ready = {name: asyncio.Event() for name in names}
        self.batches = {}

    async def fetch(self, folder):
        for path in sorted(Path(folder).glob("*.batch")):
            await asyncio.sleep(0.01)
            self.batches[path.stem] = torch.full((4, 8), float(len(path.read_text())))
            self.ready[path.stem].set()

    async def take(self, name):
        await self.ready[name].wait()
        return self.batches.pop(name)


async def train(model):
    prefetcher = Prefetcher([f"{number:03}" for number in range(20)])
    fetching = asyncio.create_task(prefetcher.fetch("/tmp/stream"))
    for name in prefetcher.names:
        batch = await prefetcher.take(name)
        model.zero_grad()
        model(batch).mean().backward()
        dist.all_reduce(model.weight.grad)
    await fetching


def main():
    dist.init_process_group("gloo")
    asyncio.run(train(torch.nn.Linear(8, 1)))
    dist.destroy_process_group()


main()
