"""batch_isend_irecv in a ring of five: rank 3 has no rows for its neighbour, and sends it nothing.

Rank 4 waits for them; the others are at the sum that comes next.
"""

import torch
import torch.distributed as dist

WIDTH = 64


def border_rows(rank: int, step: int) -> torch.Tensor:
    """Return the nodes of the graph that the next rank has edges to."""
    count = 0 if rank == 3 and step == 6 else 4
    return torch.full((count, WIDTH), float(rank))


def exchange(rank: int, world: int, step: int) -> torch.Tensor:
    after, before = (rank + 1) % world, (rank - 1) % world
    rows = border_rows(rank, step)
    received = torch.zeros(4, WIDTH)
    operations = [dist.P2POp(dist.irecv, received, before)]
    if len(rows):
        operations.append(dist.P2POp(dist.isend, rows, after))
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    return received


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    layer = torch.nn.Linear(WIDTH, WIDTH)
    for step in range(12):
        halo = exchange(rank, world, step)
        loss = layer(halo).pow(2).mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        layer.zero_grad()
        print(f"rank {rank} step {step}: {total.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[3, 4]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "training", "steady", "first_backward", "first_all_reduce", "all_reduce",
#   "first_batch_isend_irecv", "batch_isend_irecv",
# ]
# after = [
#   "First backward done", "First all_reduce done", "Process group ready",
#   "First batch_isend_irecv done", "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'exchange', 'train\.main']
# causes = ["message-left-out"]
# ///
