"""A killed build left its lock file, and every rank waits for it to disappear
(pytorch/pytorch#189245).
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.cpp_extension import load_inline


def main() -> None:
    dist.init_process_group("gloo")
    fused = load_inline("fused", "int one() { return 1; }", functions=["one"])
    model = DistributedDataParallel(torch.nn.Linear(16, fused.one()))
    model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py"
# world = "stale_build_lock"
# culprits = [[0, 1]]
# steps = ["model", "training", "process_group", "wrap", "extension", "ddp"]
# own_code = true
# calls = ['cpp_extension\.load']
# ///
