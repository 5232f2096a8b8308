"""Four ranks sum over their own pair, of even or of odd numbers, and then over all; from the fourth
step on ranks 2 and 3 do it the other way round.
"""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    total = torch.ones(4)
    for step in range(8):
        if step > 2 and rank >= world // 2:
            dist.all_reduce(total)
            dist.all_reduce(total, group=pairs[rank % 2])
            continue
        dist.all_reduce(total, group=pairs[rank % 2])
        dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2, 3], [0, 1, 2, 3]]
# steps = ["first_all_reduce", "collectives", "training", "script"]
# after = ["First all_reduce done", ""]
# own_code = true
# calls = ['all_reduce']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# says = ['step > 2 and rank >= world // 2|all_reduce']
# ///
