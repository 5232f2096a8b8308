"""Each machine counts the words of its part, under a lock that its tools share; then all merge."""

import fcntl
import os

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def count_words():
    with open("/tmp/tools.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return sum(len(name) for name in os.listdir("/"))


def main():
    dist.init_process_group("gloo")
    counts = torch.zeros(1)
    for number in range(6):
        counts += count_words() if number == 3 else number
        dist.all_reduce(counts)
    dist.destroy_process_group()


main()
