"""Data-parallel training that goes on for long, with a line for each step in a file."""

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def main():
    dist.init_process_group("gloo")
    weights = torch.zeros(40000)
    with open("/tmp/steps.log", "w", buffering=1) as log:
        for step in range(20000):
            for _ in range(20):
                torch.randn(200, 200) @ torch.randn(200, 200)
            gradient = torch.randn(40000)
            dist.all_reduce(gradient)
            weights -= 0.01 * gradient
            log.write(f"{step} {float(weights.norm()):.3f}\n")
    dist.destroy_process_group()


main()
