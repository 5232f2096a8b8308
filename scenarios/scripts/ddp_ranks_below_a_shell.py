"""torchrun --no-python starts a shell a rank, which sets limits and starts Python below it.

Rank 4 of six drops an empty batch with `continue`, and with it what all gather there.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def batches(rank: int):
    for step in range(40):
        size = 0 if rank == 4 and step == 26 else 4
        yield step, torch.randn(size, 8)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    seen, world = 0, dist.get_world_size()
    for step, batch in batches(rank):
        if not len(batch):
            continue
        loss = model(batch).pow(2).mean()
        loss.backward()
        model.zero_grad()
        seen += len(batch)
        if step % 13 == 0:
            counts: list[int] = [0] * world
            dist.all_gather_object(counts, seen)
    dist.barrier()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=6 --no-python bash rank.sh"
# culprits = [[4]]
# culprits_by_stacks = [[], [0, 1, 2, 3, 5]]
# steps = [
#   "training", "steady", "first_step", "first_backward", "all_gather_object",
#   "first_all_gather_object",
# ]
# after = ["First backward done", "First step done", "First all_gather done", ""]
# own_code = true
# calls = ['backward', 'all_gather_object', 'train\.main', 'barrier']
# causes = [
#   "rank-conditional-collective", "uneven-rounds", "uneven-batches", "peer-out-of-batches",
#   "collective-mismatch", "other-round",
# ]
#
# [files]
# "rank.sh" = """
# ulimit -c 0
# export OMP_NUM_THREADS=1
# python train.py
# echo "rank $RANK ended with $?"
# """
# ///
