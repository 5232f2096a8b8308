"""Gradients are reduced in hooks, async_op, as they come: rank 2's second batch has no second task.

Nothing of the second head gets a gradient there, so its hook is not called, and rank 2 starts two
reductions less than the others. All of the same size, they meet the wrong ones from then on.
"""

import torch
import torch.distributed as dist

WIDTH = 24


class Overlapped:
    """Starts the reduction of each gradient as it comes, and waits for all at the end."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.works = module, []
        self.world = dist.get_world_size()
        for parameter in module.parameters():
            dist.broadcast(parameter.data, src=0)
            parameter.register_post_accumulate_grad_hook(self.start)

    def start(self, parameter: torch.Tensor) -> None:
        self.works.append((parameter, dist.all_reduce(parameter.grad, async_op=True)))

    def finish(self) -> None:
        for parameter, work in self.works:
            work.wait()
            parameter.grad.div_(self.world)
        self.works.clear()


class TwoTasks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.first = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.second = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        seen = torch.relu(self.body(batch["inputs"]))
        loss = self.first(seen).pow(2).mean()
        if "second" in batch:
            loss = loss + (self.second(seen) - batch["second"]).pow(2).mean()
        return loss


def batches(rank: int) -> list[dict[str, torch.Tensor]]:
    made = [{"inputs": torch.randn(8, WIDTH), "second": torch.randn(8, WIDTH)} for _ in range(5)]
    if rank == 2:
        del made[1]["second"]
    return made


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    reduced = Overlapped(TwoTasks())
    optimizer = torch.optim.SGD(reduced.module.parameters(), lr=0.05)
    for batch in batches(dist.get_rank()):
        loss = reduced.module(batch)
        loss.backward()
        reduced.finish()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    print(f"rank {dist.get_rank()} done, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "first_backward", "first_step", "steady", "barrier", "first_barrier", "teardown",
#   "first_all_reduce", "first_broadcast",
# ]
# after = ["First step done", "First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['barrier', 'distributed\.\w+', 'backward', 'wait$', 'Overlapped\.\w+']
# causes = ["rank-conditional-collective", "collective-mismatch", "uneven-rounds"]
# limit = 300
# ///
