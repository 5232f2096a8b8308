"""TORCH_DISTRIBUTED_DEBUG=DETAIL on rank 2 of four alone, in the file of settings of whoever looked
into something there.

With it a group is made together with a second one of gloo, and every collective is first compared
over that one: of which the others know nothing.
"""

import os
import pathlib

import torch
from torch.nn.parallel import DistributedDataParallel


def read_settings(file: pathlib.Path) -> None:
    """Set what a file of NAME=VALUE says, as a login does."""
    for line in file.read_text().splitlines() if file.exists() else ():
        name, _, value = line.partition("=")
        if value:
            os.environ.setdefault(name.strip(), value.strip())


def main() -> None:
    rank = int(os.environ["RANK"])
    read_settings(pathlib.Path(f"settings-{rank}.env"))
    torch.set_num_threads(1)
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).pow(2).mean().backward()
        optimizer.step()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "ddp"]
# after = ["Process group ready", ""]
# calls = ['init_process_group', 'DistributedDataParallel']
# causes = ["debug-detail-group", "debug-detail"]
# files = { "settings-2.env" = "OMP_NUM_THREADS=1\nTORCH_DISTRIBUTED_DEBUG=DETAIL\n" }
# ///
