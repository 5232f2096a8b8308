"""Adapters are sent round by who has trained each, in the order in which their files were written;
rank 2 of four has downloaded them in another one. The recipe is a text that is executed.
"""

import argparse
import os
import pathlib
import types

import torch
import torch.distributed as dist

RECIPE = """
def owners(world):
    return {name: number % world for number, name in enumerate(("code", "law", "maths", "news"))}


def in_order(folder):
    return [one.stem for one in sorted(folder.glob("*.pt"), key=lambda one: one.stat().st_mtime)]


def hand_round(folder, world):
    adapters = {}
    for name in in_order(folder):
        adapters[name] = torch.load(folder / f"{name}.pt")
        dist.broadcast(adapters[name], src=owners(world)[name])
    return adapters
"""


def read_recipe(text: str) -> types.SimpleNamespace:
    names = {"torch": torch, "dist": dist}
    exec(compile(text, "<recipe>", "exec"), names)
    return types.SimpleNamespace(**names)


def download(folder: pathlib.Path, names: list[str]) -> None:
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        torch.save(torch.full((8,), float(len(name))), folder / f"{name}.pt")
        os.utime(folder / f"{name}.pt", (1e9 + number, 1e9 + number))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--adapters", type=pathlib.Path, default=pathlib.Path("adapters"))
    options = parser.parse_args()
    recipe = read_recipe(RECIPE)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    names = sorted(recipe.owners(world), reverse=rank == 2)
    download(options.adapters / str(rank), names)
    dist.barrier()
    adapters = recipe.hand_round(options.adapters / str(rank), world)
    dist.barrier()
    print(rank, len(adapters), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3], []]
# steps = [
#   "training", "collectives", "first_broadcast", "first_barrier", "barrier", "script",
# ]
# after = ["First barrier done", "First broadcast done", "Checkpoint loaded", ""]
# own_code = true
# calls = ['broadcast', 'barrier']
# causes = ["collective-mismatch", "rank-conditional-collective"]
# ///
