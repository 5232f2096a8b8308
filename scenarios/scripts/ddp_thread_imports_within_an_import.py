"""Rank 2 of four loads a plugin whose import starts a thread, and the thread imports the plugin.

The plugin waits in its import for the thread's table; the others wait for rank 2 in a broadcast,
and in the constructor of DDP that follows.
"""

import importlib

import torch
import torch.distributed as dist

PLUGINS = {"default": "plain_reader", 2: "indexed_reader"}


def load_reader(rank: int) -> int:
    """Return how many rows the reader of this rank's shard has."""
    name = PLUGINS.get(rank, PLUGINS["default"])
    return len(importlib.import_module(name).ROWS)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = torch.tensor(float(load_reader(rank)))
    dist.broadcast(rows, src=0)
    layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for _ in range(3):
        layer(torch.randn(int(rows), 8)).sum().backward()
    print(f"rank {rank} done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "training", "model"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['indexed_reader', 'load_reader', 'import', 'join', 'train\.main']
# causes = ["import-deadlock", "deadlock", "thread-stuck", "import-stuck"]
#
# [files]
# "plain_reader.py" = """
# ROWS = list(range(16))
# """
# "indexed_reader.py" = """
# import threading
#
# WIDTH = 4
# TABLE = []
#
#
# def fill() -> None:
#     from indexed_reader import WIDTH
#
#     TABLE.extend(range(WIDTH * 4))
#
#
# filler = threading.Thread(target=fill)
# filler.start()
# filler.join()
# ROWS = list(TABLE)
# """
# ///
