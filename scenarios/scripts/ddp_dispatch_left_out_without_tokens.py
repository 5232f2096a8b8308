"""A mixture of experts over all_to_all: rank 1's batch is all padding, and it has nothing to send.

It leaves its dispatch out, as it has no token; but it is an expert as well, to which the others
send. They are in all_to_all_single, rank 1 is in the reduction of the loss.
"""

import torch
import torch.distributed as dist

DIM, PAD = 8, 0


def batch(rank: int, step: int) -> torch.Tensor:
    tokens = torch.randint(1, 100, (16,))
    if rank == 1 and step == 3:
        tokens[:] = PAD
    return tokens


class Experts:
    def __init__(self) -> None:
        self.world = dist.get_world_size()
        self.expert = torch.nn.Linear(DIM, DIM)

    def exchange(self, rows: torch.Tensor, sends: list[int], gets: list[int]) -> torch.Tensor:
        got = torch.empty(sum(gets), DIM)
        dist.all_to_all_single(got, rows, output_split_sizes=gets, input_split_sizes=sends)
        return got

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        if not len(hidden):
            return hidden
        routes = torch.randint(0, self.world, (len(hidden),)).sort().values
        sends = torch.bincount(routes, minlength=self.world)
        gets = torch.empty_like(sends)
        dist.all_to_all_single(gets, sends)
        mine = self.exchange(hidden, sends.tolist(), gets.tolist())
        return self.exchange(self.expert(mine), gets.tolist(), sends.tolist())


@torch.no_grad()
def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    embedding, experts = torch.nn.Embedding(100, DIM), Experts()
    for step in range(6):
        tokens = batch(rank, step)
        out = experts(embedding(tokens[tokens != PAD]))
        loss = out.pow(2).sum()
        dist.all_reduce(loss)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = [
#   "process_group", "training", "first_all_reduce", "first_collective", "ddp_wrap",
#   "first_all_to_all_single",
# ]
# after = ["First all_to_all_single done", "First all_reduce done", ""]
# own_code = true
# calls = ['all_reduce', 'all_to_all', 'train\.main', 'Experts']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
