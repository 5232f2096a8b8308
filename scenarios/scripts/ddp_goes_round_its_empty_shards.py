"""A stream of shards for five ranks has four: rank 3 has none, and goes round its loader for ever.

It makes an iterator, gets no batch, and makes the next one; the others are in their first backward.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

SHARDS = ["a.tar", "b.tar", "c.tar", "", "e.tar"]  # one is on no list: its upload had failed


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, rank: int, world: int) -> None:
        self.shards = [one for one in SHARDS[rank::world] if one]

    def __iter__(self):
        for shard in self.shards:
            generator = torch.Generator().manual_seed(len(shard))
            for _ in range(32):
                yield torch.randn(16, generator=generator)


def endless(loader: DataLoader[torch.Tensor]):
    while True:
        yield from loader


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = endless(DataLoader(Stream(rank, world), batch_size=4))
    for step in range(40):
        loss = model(next(batches)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"rank {rank} step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "all_reduce", "first_all_reduce",
# ]
# after = ["Process group ready", "DDP ready", "First batch done", "Training", ""]
# own_code = true
# busy = true
# calls = ['DataLoader', 'endless', 'loader', 'train\.', 'next']
# causes = ["busy-loop", "polling-loop", "peer-out-of-batches", "dead-producer"]
# ///
