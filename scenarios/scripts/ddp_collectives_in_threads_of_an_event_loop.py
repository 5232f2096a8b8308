"""Each of four ranks runs an event loop, and its collectives in threads (asyncio.to_thread); rank 2
awaits an event that the reader of its labels was to set, and the reader has left early.
"""

import asyncio

import torch
import torch.distributed as dist


class Labels:
    """Labels that are read beside the training."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.ready = asyncio.Event()
        self.rows: list[int] = []

    async def read(self) -> None:
        for row in range(40):
            await asyncio.sleep(0.02)
            if self.rank == 2 and row == 30:
                return  # its file ends here
            self.rows.append(row)
        self.ready.set()


async def reduce(tensor: torch.Tensor) -> None:
    await asyncio.to_thread(dist.all_reduce, tensor)


async def train() -> None:
    rank = dist.get_rank()
    labels = Labels(rank)
    reading = asyncio.create_task(labels.read())
    for step in range(10):
        total = torch.ones(8)
        await reduce(total)
        if step == 4:
            await labels.ready.wait()
        print(f"rank {rank} step {step}", flush=True)
    await reading


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asyncio.run(train())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "process_group", "first_all_reduce", "all_reduce"]
# after = ["First all_reduce done", "Process group ready", ""]
# own_code = true
# calls = ['asyncio\.run', 'select', 'main', 'train', 'run']
# causes = ["event-loop", "unknown"]
# ///
