"""Rank 1 of three has a tool fetch its labels, and the tool asks at the terminal for a password.

Its output is captured, so that nobody sees the question.
"""

import subprocess

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FETCH = 'read -r -s -p "Password for labels: " secret; echo "$secret"'


def fetch_labels(rank: int) -> int:
    if rank != 1:
        return rank  # from the cache
    done = subprocess.run(["bash", "-c", FETCH], capture_output=True, text=True, check=True)
    return len(done.stdout)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    labels = fetch_labels(rank)
    for _ in range(5):
        (model(torch.randn(4, 8)).pow(2).mean() + labels).backward()
        model.zero_grad()
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# world = "terminal"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "steady", "wrap", "ddp", "ddp_wrap"]
# after = ["DDP ready", ""]
# own_code = true
# calls = ['fetch_labels', 'subprocess', 'run', 'communicate', 'read']
# causes = ["prompt", "password-prompt"]
# ///
