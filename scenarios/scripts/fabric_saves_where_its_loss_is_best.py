"""Fabric, five ranks: each saves when its own loss is its best so far; rank 3's was not, once.

fabric.save() ends in a barrier of all; that of a rank that saves alone meets the next collective.
"""

import torch
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset


def losses_of(rank: int) -> list[float]:
    falling = [1.0 / (step + 1) for step in range(40)]
    if rank == 3:
        falling[23] = 9.0  # a hard batch: no better than before
    return falling


def main() -> None:
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=5, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(800, 8)), batch_size=4))
    best, seen = float("inf"), losses_of(fabric.global_rank)
    for step, (batch,) in zip(range(40), loader, strict=False):
        loss = model(batch).pow(2).mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 8 == 7 and seen[step] < best:
            best = seen[step]
            fabric.save("best.ckpt", {"model": model, "step": step})
    fabric.barrier()
    fabric.print("done")


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[]]
# steps = [
#   "training", "steady", "first_step", "first_backward", "barrier", "first_barrier", "save",
#   "save_checkpoint",
# ]
# after = ["First step done", "First backward done", "First optimizer step done", ""]
# own_code = true
# calls = ['backward', 'all_reduce', 'barrier', 'train\.main', 'save']
# causes = ["rank-conditional-collective", "uneven-rounds", "collective-mismatch", "other-round"]
# ///
