"""batch_isend_irecv: four slabs of a grid exchange their edges; rank 2 has the two tags swapped.

Rank 2's edge from below carries another tag than rank 1 gives it, and so has that from above: it
waits for both, and its neighbours wait for it. Rank 0 has rank 1's edge and waits in the next step.
"""

import torch
import torch.distributed as dist

UP, DOWN = 10, 11  # the way that an edge goes: to a larger rank, to a smaller one


def exchange(slab: torch.Tensor, rank: int, world: int, tags: tuple[int, int]) -> None:
    up, down = tags
    operations = []
    if rank > 0:
        operations.append(dist.P2POp(dist.isend, slab[1].clone(), rank - 1, tag=down))
        operations.append(dist.P2POp(dist.irecv, slab[0], rank - 1, tag=up))
    if rank < world - 1:
        operations.append(dist.P2POp(dist.isend, slab[-2].clone(), rank + 1, tag=up))
        operations.append(dist.P2POp(dist.irecv, slab[-1], rank + 1, tag=down))
    for request in dist.batch_isend_irecv(operations):
        request.wait()


def relax(slab: torch.Tensor) -> torch.Tensor:
    inner = slab.clone()
    inner[1:-1] = (slab[:-2] + slab[2:]) / 2
    return inner


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tags = (DOWN, UP) if rank == 2 else (UP, DOWN)
    slab = torch.randn(10, 32)
    for step in range(20):
        exchange(slab, rank, world, tags)
        slab = relax(slab)
        if step % 5 == 4:
            rest = slab.pow(2).sum()
            dist.all_reduce(rest)
            if rank == 0:
                print(f"step {step} residual {rest.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2], [1, 2], [2, 3], [1, 2, 3]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# waiting = [0]
# steps = ["process_group", "ddp_wrap", "first_collective", "training", "first_batch_isend_irecv"]
# after = ["Process group ready", "First batch_isend_irecv done", ""]
# own_code = true
# calls = ['wait$', 'batch_isend_irecv', 'exchange', 'distributed\.\w+']
# causes = ["message-left-out", "deadlock", "collective-mismatch"]
# ///
