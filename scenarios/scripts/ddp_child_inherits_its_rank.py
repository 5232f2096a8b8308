"""Rank 1 of three has its checkpoint scored by a program, which finds RANK and WORLD_SIZE set.

So the program takes itself for a rank of three, makes a process group at the port of the job, plus
one, and waits there for two that never come. Rank 1 waits for it, and the others for rank 1.
"""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(30):
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 1 and step == 20:
            torch.save(model.module.state_dict(), "last.pt")
            done = subprocess.run([sys.executable, "score.py", "last.pt"], stdout=subprocess.PIPE)
            print("score", done.stdout.decode().strip(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --nproc_per_node=3 --master_port=$PORT train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "steady", "first_step", "first_optimizer_step"]
# after = ["First step done", "First optimizer step done", ""]
# own_code = true
# calls = ['subprocess', 'run', 'communicate', 'init_process_group', 'train\.main', 'score']
# says = ['score\.py|init_process_group|python']
#
# [files]
# "score.py" = """
# import os
# import sys
#
# import torch
# import torch.distributed as dist
#
#
# def main() -> None:
#     if "RANK" in os.environ:
#         os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
#         os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
#         dist.init_process_group("gloo")
#     weights = torch.load(sys.argv[1])
#     print(sum(one.abs().sum().item() for one in weights.values()))
#
#
# main()
# """
# ///
