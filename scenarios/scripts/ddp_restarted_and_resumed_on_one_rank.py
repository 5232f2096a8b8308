"""torchrun restarts all after an error; only rank 2 finds its state, and does not ask for a start.

In the first attempt rank 1 fails while all read their data. In the second one the ranks without a
state agree on their seeds; rank 2 has one and goes to the training.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

KEPT = Path("state")


def resume(rank: int) -> dict[str, int] | None:
    """Return what the rank has kept of the attempt before."""
    file = KEPT / f"rank{rank}.pt"
    return torch.load(file) if file.exists() else None


def fresh_state(rank: int) -> dict[str, int]:
    seeds: list[int | None] = [None] * dist.get_world_size()
    dist.all_gather_object(seeds, 100 + rank)
    return {"step": 0, "seed": sum(one or 0 for one in seeds)}


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    KEPT.mkdir(exist_ok=True)
    if attempt == 0 and rank == 2:  # its tokens are counted before the others' are
        torch.save({"step": 0, "seed": 406}, KEPT / f"rank{rank}.pt")
    if attempt == 0 and rank == 1:
        sys.exit("out of memory (not really)")
    time.sleep(3 if attempt else 30)  # reads its data, which is in the cache the second time
    dist.init_process_group("gloo")
    state = resume(rank) or fresh_state(rank)
    model = torch.nn.Linear(24, 24)
    for step in range(state["step"], 12):
        model(torch.randn(4, 24)).pow(2).mean().backward()
        for one in model.parameters():
            dist.all_reduce(one.grad)
        model.zero_grad()
        print(f"attempt {attempt} rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --max-restarts=1 --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "process_group", "training", "steady", "first_backward", "first_all_reduce",
#   "first_all_gather_object", "all_gather_object", "all_reduce", "first_collective",
# ]
# after = ["Process group ready", "First backward done", "First all_gather_object done", ""]
# own_code = true
# calls = ['distributed\.\w+', 'fresh_state', 'train\.main']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# limit = 240
# ///
