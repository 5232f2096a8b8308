"""Each step of five ranks takes a task by dice; rank 3 has drawn once more, for a skipped sample.

From then on its dice differ: the others gather features for one task, rank 3 sums for the other.
"""

import random

import torch
import torch.distributed as dist


class Multitask(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = torch.nn.Linear(24, 24), torch.nn.Linear(24, 24)

    def contrast(self, data: torch.Tensor) -> torch.Tensor:
        features = self.trunk(data)
        everybody = [torch.zeros_like(features) for _ in range(dist.get_world_size())]
        dist.all_gather(everybody, features.detach())
        return -(features @ torch.cat(everybody).T).softmax(dim=1).max()

    def reconstruct(self, data: torch.Tensor) -> torch.Tensor:
        loss = (self.head(self.trunk(data)) - data).pow(2).mean()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return loss / (1 + total)


def samples(rank: int, step: int, dice: random.Random) -> torch.Tensor:
    data = torch.randn(4, 24)
    while rank == 3 and step == 4 and data[0, 0] > -9:
        data[0, 0] = -10.0 if dice.random() < 2 else 0.0  # draws another sample in its place
    return data


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dice, model = random.Random(11), Multitask()
    for step in range(40):
        data = samples(rank, step, dice)
        task = model.contrast if dice.random() < 0.5 else model.reconstruct
        task(data).backward()
        model.zero_grad()
        print(f"rank {rank} step {step}: {task.__name__}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[0, 1, 2, 3, 4]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "process_group", "training", "steady", "first_backward", "first_all_reduce", "all_reduce",
#   "first_all_gather", "all_gather", "first_batch",
# ]
# after = [
#   "Process group ready", "First all_reduce done", "First all_gather done", "First backward done",
#   "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'contrast', 'reconstruct', 'train\.main']
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# ///
