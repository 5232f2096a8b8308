"""TORCH_DISTRIBUTED_DEBUG=DETAIL on rank 2 of four alone, in the file of settings of whoever looked
into something there.

With it a group is made together with a second one of gloo, and every collective is first compared
over that one: of which the others know nothing.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
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
# command = "torchrun --standalone --nproc_per_node=4 --no-python sh launch.sh train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "ddp"]
# after = ["Process group ready", ""]
# calls = ['init_process_group', 'DistributedDataParallel']
# causes = ["debug-detail-group", "debug-detail"]
# [files]
# "settings-2.sh" = "export TORCH_DISTRIBUTED_DEBUG=DETAIL\n"
# "launch.sh" = """
# settings=./settings-$RANK.sh
# if [ -e "$settings" ]; then . "$settings"; fi
# exec python "$@"
# """
# ///
