"""torch.distributed.pipelining: the middle stage was given four microbatches, and the others six.

It has received and sent four and waits for their gradients; the last stage waits for the fifth.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

MICROBATCHES = {"default": 6, "small-node": 4}


def microbatches(stage: int) -> int:
    kind = "small-node" if stage == 1 else "default"
    return int(os.environ.get("MICROBATCHES", MICROBATCHES[kind]))


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    layer = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh())
    stage = PipelineStage(layer, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(
        stage, n_microbatches=microbatches(rank), loss_fn=torch.nn.functional.mse_loss
    )
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(4):
        if rank == 0:
            schedule.step(torch.randn(24, 32))
        elif rank == world - 1:
            losses: list[torch.Tensor] = []
            schedule.step(target=torch.randn(24, 32), losses=losses)
            print(f"loss {torch.stack(losses).mean():.3f}", flush=True)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# culprits_by_stacks = [[1, 2], [0, 1, 2]]
# waiting = [0, 2]
# steps = [
#   "process_group", "training", "steady", "first_backward", "first_recv", "first_send",
#   "first_recv_object_list", "first_send_object_list",
# ]
# after = [
#   "Process group ready", "First send_object_list done", "First recv_object_list done",
#   "First backward done", "",
# ]
# own_code = true
# calls = ['pipelining', '_wait_batch_p2p', '\bstep$', 'distributed\.\w+', 'train\.main']
# causes = ["message-left-out", "deadlock"]
# limit = 300
# ///
