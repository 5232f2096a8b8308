"""The first rank has the weights and sends them to all others, piece by piece, before training."""

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def main():
    dist.init_process_group("gloo")
    for _ in range(8):
        dist.broadcast(torch.randn(250_000), src=0)
    weights = torch.zeros(16)
    for _ in range(10):
        gradient = torch.randn(16)
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient
    dist.destroy_process_group()


main()
