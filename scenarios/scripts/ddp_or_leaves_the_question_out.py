"""`if worse(loss) or all_ranks_stop(flag)`: rank 2 of four finds its loss worse and never comes to
the second half, which all the others sum up in.
"""

import torch
import torch.distributed as dist

PATIENCE = 3


class Stopper:
    def __init__(self) -> None:
        self.best, self.bad = float("inf"), 0

    def worse(self, loss: float) -> bool:
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(loss, self.best)
        return self.bad >= PATIENCE

    def asked_by_all(self) -> bool:
        votes = torch.tensor([float(self.bad)])
        dist.all_reduce(votes, op=dist.ReduceOp.MIN)
        return votes.item() >= PATIENCE


def losses(rank: int):
    level = 5.0
    while True:
        yield level
        level = level * 0.9 if rank != 2 or level > 3.5 else level + 0.1


def main() -> None:
    dist.init_process_group("gloo")
    rank, stopper, rate = dist.get_rank(), Stopper(), 1.0
    for epoch, loss in zip(range(40), losses(rank), strict=False):
        summed = torch.tensor([loss])
        dist.all_reduce(summed)
        if stopper.worse(loss) or stopper.asked_by_all():
            rate *= 0.5
            stopper.bad = 0
        if rank == 0:
            print(epoch, summed.item(), rate, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 3], [0, 1, 2, 3], []]
# waiting = [0, 1, 3]
# steps = ["training", "collectives", "first_all_reduce", "first_barrier", "barrier", "script"]
# after = ["First all_reduce done", ""]
# own_code = true
# calls = ['all_reduce', 'barrier']
# causes = ["collective-mismatch", "rank-conditional-collective", "uneven-rounds"]
# ///
