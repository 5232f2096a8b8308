"""A sweep starts torchrun once for each trial; in the second one rank 2 of three stops by itself.

Its own score is below that of the first trial, so it leaves the loop and waits in the barrier at
the end; the others go on to train.
"""

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--trial", type=int, required=True)
args = parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, best = dist.get_rank(), Path("best.json")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    bound = json.loads(best.read_text())["score"] if best.exists() else None
    for step in range(40):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        score = 1.0 / (1 + step) if rank == 2 else 1.0
        if bound is not None and step >= 15 and score < bound:
            print(f"rank {rank}: trial {args.trial} is pruned in step {step}", flush=True)
            break
    dist.barrier()
    if rank == 0:
        best.write_text(json.dumps({"trial": args.trial, "score": 0.05}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "python sweep.py"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["training", "steady", "barrier", "first_barrier"]
# after = ["First step done", "First backward done", "First optimizer step done", ""]
# own_code = true
# calls = ['barrier', 'train\.main']
# causes = ["rank-conditional-collective", "uneven-rounds", "uneven-batches", "peer-out-of-batches"]
#
# [files]
# "sweep.py" = """
# import subprocess
#
# for trial in range(3):
#     command = "torchrun --standalone --nproc_per_node=3 train.py --trial"
#     subprocess.run([*command.split(), str(trial)], check=False)
# """
# ///
