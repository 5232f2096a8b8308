"""DDP's join() lets rank 1 have a batch less, and knows nothing of the gather in the loop.

Rank 1 has joined and plays along with the reductions of gradients; the others gather their losses
after each step, and nobody told join() of that.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def batches(rank: int) -> list[torch.Tensor]:
    return [torch.randn(4, 16) for _ in range(4 if rank == 1 else 6)]


def log_losses(loss: torch.Tensor, step: int) -> None:
    rank = dist.get_rank()
    losses: list[float | None] = [None] * dist.get_world_size()
    dist.all_gather_object(losses, round(loss.item(), 4))
    if rank == 0:
        print(f"step {step}: {losses}", flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step, batch in enumerate(batches(dist.get_rank())):
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log_losses(loss, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "training", "steady", "first_backward", "first_step", "first_all_gather_object",
#   "first_all_reduce", "join", "first_all_gather",
# ]
# after = [
#   "First step done", "First backward done", "First all_gather_object done",
#   "First all_gather done", "",
# ]
# own_code = true
# calls = ['join', '__exit__', 'distributed\.\w+', 'train\.main']
# causes = [
#   "uneven-batches", "peer-out-of-batches", "rank-conditional-collective", "collective-mismatch",
#   "uneven-rounds",
# ]
# limit = 300
# ///
