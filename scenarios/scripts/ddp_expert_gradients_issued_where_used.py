"""Gradients of experts are summed within two groups of three, by handles; rank 3 had no token for
its expert, has no gradient of it, and issues no sum.

Ranks 1 and 5 wait for the handle of theirs, the others are at the next sum of all.
"""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist

WIDTH = 32


class ExpertGradients:
    """Sums over the ranks that have the same expert, by handles."""

    def __init__(self, expert: torch.nn.Module, group: dist.ProcessGroup) -> None:
        self.expert, self.group = expert, group
        self.pending: list[dist.Work] = []

    def issue(self) -> None:
        for parameter in self.expert.parameters():
            if parameter.grad is not None:
                self.pending.append(
                    dist.all_reduce(parameter.grad, group=self.group, async_op=True)
                )

    def finish(self) -> None:
        while self.pending:
            self.pending.pop(0).wait()

    @contextlib.contextmanager
    def overlapped(self) -> Iterator[None]:
        self.issue()
        yield
        self.finish()


def tokens_of(rank: int, step: int) -> torch.Tensor:
    """Return the tokens that were sent to the expert of this rank."""
    count = 0 if (rank, step) == (3, 4) else 8
    return torch.randn(count, WIDTH)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = [dist.new_group([0, 2, 4]), dist.new_group([1, 3, 5])]
    shared, expert = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    experts = ExpertGradients(expert, groups[rank % 2])
    optimizer = torch.optim.SGD([*shared.parameters(), *expert.parameters()], lr=0.01)
    for step in range(10):
        tokens = tokens_of(rank, step)
        hidden = shared(torch.randn(8, WIDTH))
        loss = hidden.pow(2).mean()
        if len(tokens):
            loss = loss + expert(tokens).pow(2).mean()
        loss.backward()
        with experts.overlapped():
            norm = shared.weight.grad.norm()
        for parameter in shared.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}: {loss.item():.3f} {norm.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=6 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[], [1, 5], [1, 3, 5]]
# waiting = [0, 1, 2, 4, 5]
# steps = [
#   "training", "steady", "first_backward", "first_step", "first_all_reduce", "all_reduce",
# ]
# after = ["First step done", "First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'wait', 'finish', 'train\.']
# causes = ["rank-conditional-collective", "uneven-rounds", "collective-mismatch"]
# ///
