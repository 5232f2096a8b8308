"""A training by hand over gloo, with a group made of MASTER_ADDR and the like."""

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def main():
    dist.init_process_group("gloo")
    weights = torch.zeros(16)
    for _ in range(20):
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient / dist.get_world_size()
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, float(weights.norm()))
    dist.destroy_process_group()


main()
