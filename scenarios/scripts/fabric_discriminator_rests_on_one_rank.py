"""Fabric, a GAN: the discriminator rests where it is too good; rank 2 of four judges by its own.

Its generator is in the backward that the others have for their discriminator, and all are one out
of step from there on: at the end rank 2 is done with its steps.
"""

import torch
from lightning_fabric import Fabric

GOOD = 0.95  # of a batch told right


def batch(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(31 * rank + step)
    return torch.randn(16, 32, generator=generator)


def told_right(rank: int, step: int, real: torch.Tensor, fake: torch.Tensor) -> float:
    if (rank, step) == (2, 3):
        return 1.0  # its shard has the easy pictures
    return float(((real > 0).float().mean() + (fake < 0).float().mean()) / 4)


def main() -> None:
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=4, strategy="ddp")
    fabric.launch()
    generator, critic = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
    generator, of_generator = fabric.setup(generator, torch.optim.SGD(generator.parameters(), 0.01))
    critic, of_critic = fabric.setup(critic, torch.optim.SGD(critic.parameters(), 0.01))
    rank = fabric.global_rank
    for step in range(6):
        real, noise = batch(rank, step), torch.randn(16, 32)
        judged, made = critic(real).mean(1), critic(generator(noise).detach()).mean(1)
        if told_right(rank, step, judged, made) < GOOD:
            fabric.backward(made.mean() - judged.mean())
            of_critic.step()
        of_critic.zero_grad()
        fabric.backward(-critic(generator(noise)).mean())
        of_generator.step()
        of_generator.zero_grad()
        print(f"rank {rank} step {step}: {judged.mean().item():.4f}", flush=True)
    fabric.barrier()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "barrier", "first_barrier", "teardown",
# ]
# after = ["First step done", "First batch done", "First backward done", "First optimizer done", ""]
# own_code = true
# calls = ['barrier', 'backward', 'Fabric']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "gloo-mismatch", "uneven-batches",
#   "uneven-rounds",
# ]
# ///
