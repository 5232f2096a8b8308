"""Rank 1 of three sends its lines through a filter, and reads what comes back only when it has
written all: both pipes are full, it and the filter both write.
"""

import subprocess

import torch
import torch.distributed as dist


def clean(lines: list[bytes]) -> list[bytes]:
    filter_ = subprocess.Popen(["tr", "a-z", "A-Z"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert filter_.stdin is not None
    assert filter_.stdout is not None
    for line in lines:
        filter_.stdin.write(line)
    filter_.stdin.close()
    return filter_.stdout.readlines()


def main() -> None:
    dist.init_process_group("gloo")
    lines = [b"a line of the corpus\n"] * (100_000 if dist.get_rank() == 1 else 100)
    count = torch.tensor([len(clean(lines))])
    dist.all_reduce(count)
    print(dist.get_rank(), count.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["script", "training", "process_group"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['clean', 'write']
# causes = [
#   "full-queues-both-ways", "pipe-unread", "child-process-stuck", "deadlock", "child-program",
# ]
# ///
