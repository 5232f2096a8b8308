"""The bar of rank 3 asks for the length of its loader, and the length is agreed on by all ranks.

Rank 3 is the one that prints. The others have no bar, never ask for a length, and are in their
first gradients.
"""

import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from tqdm import tqdm

PRINTS = 3


class Stream:
    """Batches of documents whose number no rank knows alone."""

    def __init__(self, documents: int) -> None:
        self.documents = documents

    def __len__(self) -> int:
        """Return how many batches all ranks have."""
        lengths: list[int | None] = [None] * dist.get_world_size()
        dist.all_gather_object(lengths, self.documents // 4)
        return min(one for one in lengths if one is not None)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.documents // 4):
            yield torch.randn(4, 24)


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    model = torch.nn.Linear(24, 6)
    stream = Stream(documents=80)
    batches = tqdm(stream, desc="train") if rank == PRINTS else stream
    for batch in batches:
        model(batch).pow(2).mean().backward()
        flat = torch.cat([one.grad.flatten() for one in model.parameters()])
        dist.all_reduce(flat)
        model.zero_grad()
    print(f"rank {rank} is through", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=6 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[3], [0, 1, 2, 3, 4, 5], []]
# waiting = [0, 1, 2, 4, 5]
# steps = [
#   "process_group", "training", "first_backward", "first_all_reduce", "first_collective",
#   "first_all_gather_object", "all_gather_object",
# ]
# after = ["Process group ready", "First backward done", ""]
# own_code = true
# calls = ['distributed\.\w+', '__len__', 'tqdm', 'train\.main']
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# ///
