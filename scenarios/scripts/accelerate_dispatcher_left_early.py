"""accelerate hands out the batches of a stream from process 0; process 2 of four leaves the loop.

It has seen as many tokens as it wanted. The others are in the next batch, which the dispatcher
sends to all, and process 2 gathers its count.
"""

from collections.abc import Iterator

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, IterableDataset

BUDGET = 9_000  # tokens of a process


class Corpus(IterableDataset):
    """Documents of all lengths, from one stream."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(400):
            yield torch.full((64,), float(number % 17))


def tokens_of(batch: torch.Tensor, process: int) -> int:
    return batch.numel() * (3 if process == 2 else 1)  # its documents are in longer words


def train(accelerator: Accelerator, model: torch.nn.Module, loader: DataLoader) -> int:
    seen = 0
    for step, batch in enumerate(loader):
        loss = model(batch).pow(2).mean()
        seen += tokens_of(batch, accelerator.process_index)
        if step % 10 == 0:
            accelerator.print(f"step {step}: {loss.item():.3f}", flush=True)
        if seen > BUDGET:
            break
    return seen


def main() -> None:
    torch.set_num_threads(1)
    settings = DataLoaderConfiguration(dispatch_batches=True)
    accelerator = Accelerator(cpu=True, dataloader_config=settings)
    loader = accelerator.prepare(DataLoader(Corpus(), batch_size=2))
    seen = train(accelerator, torch.nn.Linear(64, 8), loader)
    every = accelerator.gather(torch.tensor([seen]))
    accelerator.print(f"tokens: {every.tolist()}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=4 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[2]]
# waiting = [0, 1, 3]
# culprits_by_stacks = [[]]
# steps = [
#   "training", "steady", "first_batch", "first_step", "prepare", "barrier", "first_barrier",
#   "all_gather", "first_all_gather", "broadcast_object_list", "first_broadcast_object_list",
#   "gather", "first_gather", "first_broadcast", "broadcast", "accelerator",
# ]
# after = [
#   "First batch done", "First batch ready", "Accelerator ready",
#   "First broadcast_object_list done", "First broadcast done", "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'gather', 'broadcast', 'train\.main', 'DataLoader']
# causes = ["uneven-batches", "uneven-rounds", "rank-conditional-collective", "collective-mismatch"]
# ///
