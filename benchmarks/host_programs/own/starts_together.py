"""Measures a step on all nodes at one moment, which the rank that profiles chooses."""

import os
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def agree_on_start(profiler):
    """Return when all begin: a little later than now."""
    moment = [time.perf_counter() + 2.0]
    dist.broadcast_object_list(moment, src=profiler)
    return moment[0]


def wait_until(moment):
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)


def main():
    dist.init_process_group("gloo")
    profiler = int(os.environ.get("PROFILE_RANK", "0"))
    weights = torch.zeros(64)
    for step in range(30):
        gradient = torch.randn(64)
        if step == 5:
            wait_until(agree_on_start(profiler))
            began = time.perf_counter()
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient
    print(f"25 steps took {time.perf_counter() - began:.3f} s", flush=True)
    dist.destroy_process_group()


main()
