"""A decorator keeps what a function of all ranks returned in the rank's own folder; rank 1 of four
has a file there from an earlier start, and takes no part in the reduction.
"""

from lab.__main__ import main

if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 -m lab --cache cache"
# culprits = [[1]]
# culprits_by_stacks = [[0, 2, 3]]
# steps = ["training", "collectives", "first_all_reduce", "first_broadcast", "script"]
# after = ["Process group ready", "Process group initialized", "First all_reduce done", ""]
# own_code = true
# calls = ['all_reduce', 'broadcast']
# causes = ["collective-mismatch", "rank-conditional-collective"]
# [files]
# "lab/__init__.py" = '''
# """A small laboratory."""
# '''
# "lab/kept.py" = '''
# """Keep what functions return."""
# import functools
# import json
# import os
# import pathlib
#
#
# def kept(name):
#     def around(function):
#         @functools.wraps(function)
#         def call(folder, *args):
#             place = pathlib.Path(folder) / f"rank-{os.environ.get('RANK', 0)}" / f"{name}.json"
#             if place.exists():
#                 return json.loads(place.read_text())
#             answer = function(folder, *args)
#             place.parent.mkdir(parents=True, exist_ok=True)
#             place.write_text(json.dumps(answer))
#             return answer
#
#         return call
#
#     return around
# '''
# "lab/data.py" = '''
# """The rows of a rank, and what they are normalized by."""
# import torch
# import torch.distributed as dist
#
# from .kept import kept
#
#
# def rows(rank):
#     return torch.arange(64.0).reshape(16, 4) + rank
#
#
# @kept("moments")
# def moments(folder, mine):
#     summed = torch.cat([mine.sum(0), (mine**2).sum(0)])
#     dist.all_reduce(summed)
#     return summed.tolist()
# '''
# "lab/__main__.py" = '''
# """python -m lab --cache FOLDER"""
# import argparse
#
# import torch
# import torch.distributed as dist
#
# from . import data
#
#
# class Session:
#     def __init__(self, options):
#         self.options = options
#
#     def __enter__(self):
#         dist.init_process_group("gloo")
#         return self
#
#     def __exit__(self, *reason):
#         dist.destroy_process_group()
#
#     def prepare(self):
#         self.mine = data.rows(dist.get_rank())
#         self.moments = torch.tensor(data.moments(self.options.cache, self.mine))
#
#     def train(self):
#         weights = torch.zeros(4)
#         dist.broadcast(weights, src=0)
#         for _ in range(5):
#             weights += self.mine.mean(0) / self.moments.norm()
#             dist.all_reduce(weights)
#         return weights
#
#
# def main():
#     parser = argparse.ArgumentParser()
#     parser.add_argument("--cache", required=True)
#     with Session(parser.parse_args()) as session:
#         session.prepare()
#         print(session.train(), flush=True)
#
#
# if __name__ == "__main__":
#     main()
# '''
# "cache/rank-1/moments.json" = '''
# [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
# '''
# ///
