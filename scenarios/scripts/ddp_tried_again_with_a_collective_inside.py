"""A decorator tries a function again after an error of the disk; the function gathers first and
writes then, and rank 1 of four, whose disk fails once, gathers twice.
"""

import train_parts.shards as shards
from train_parts.session import session


def main() -> None:
    with session() as (rank, world):
        for epoch in range(4):
            written = shards.write(rank, epoch, float(rank + epoch))
            shards.check(written)
        if rank == 0:
            print("done", world, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[0, 2, 3]]
# waiting = [0, 2, 3]
# steps = ["training", "collectives", "first_all_gather", "first_all_reduce", "script"]
# after = ["First all_gather done", "First all_reduce done", ""]
# own_code = true
# calls = ['all_gather', 'all_reduce']
# causes = ["collective-mismatch", "rank-conditional-collective"]
# [files]
# "train_parts/__init__.py" = '''
# """Parts of a training."""
# '''
# "train_parts/again.py" = '''
# """Try once more what the disk has refused."""
# import functools
# import time
#
#
# def again(times, pause=0.1):
#     def around(function):
#         @functools.wraps(function)
#         def call(*args, **named):
#             for turn in range(times):
#                 try:
#                     return function(*args, **named)
#                 except OSError:
#                     if turn + 1 == times:
#                         raise
#                     time.sleep(pause)
#
#         return call
#
#     return around
# '''
# "train_parts/session.py" = '''
# """The group of a training, as long as it lasts."""
# import contextlib
#
# import torch.distributed as dist
#
#
# @contextlib.contextmanager
# def session():
#     dist.init_process_group("gloo")
#     yield dist.get_rank(), dist.get_world_size()
#     dist.destroy_process_group()
# '''
# "train_parts/shards.py" = '''
# """Shards that all ranks write together."""
# import errno
# import pathlib
#
# import torch
# import torch.distributed as dist
#
# from .again import again
#
# _failed = set()
#
#
# def _save(path, values):
#     if path.name == "2-1" and path not in _failed:
#         _failed.add(path)
#         raise OSError(errno.EIO, "Input/output error", str(path))
#     path.write_text(repr(values))
#
#
# @again(times=3)
# def write(rank, epoch, value):
#     seen = [torch.zeros(1) for _ in range(dist.get_world_size())]
#     dist.all_gather(seen, torch.tensor([value]))
#     _save(pathlib.Path(f"{epoch}-{rank}"), [float(one) for one in seen])
#     return torch.tensor([1.0])
#
#
# def check(written):
#     dist.all_reduce(written)
#     if written.item() != dist.get_world_size():
#         raise RuntimeError("a shard is missing")
# '''
# ///
