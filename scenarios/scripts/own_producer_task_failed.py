"""In rank 2 of three a task of asyncio fails that was to fill a queue; nobody looks at it.

The loop goes on, and its main task waits for the next batch for ever.
"""

import asyncio

import torch
import torch.distributed as dist


async def fetch_batches(batches: asyncio.Queue[torch.Tensor], rank: int) -> None:
    for place in range(40):
        await asyncio.sleep(0.01)
        if rank == 2 and place == 11:
            raise ValueError(f"shard {place} has 15 columns, and not 16")
        await batches.put(torch.full((16,), float(place)))


async def train(rank: int) -> None:
    batches: asyncio.Queue[torch.Tensor] = asyncio.Queue(4)
    fetching = asyncio.create_task(fetch_batches(batches, rank), name="fetch")
    weight = torch.zeros(16)
    for _ in range(40):
        weight += await batches.get()
        dist.all_reduce(weight)
    await fetching


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    asyncio.run(train(dist.get_rank()))
    dist.destroy_process_group()


main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["first_all_reduce", "all_reduce", "training"]
# after = ["First all_reduce done"]
# own_code = true
# calls = ["get", "train", "run", "asyncio"]
# causes = ["event-loop", "dead-producer", "tasks-await-one-another", "unknown"]
# ///
