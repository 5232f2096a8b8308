"""torch.distributed.pipelining: stage 1 of four takes the schedule 1F1B, all others GPipe.

After its warm-up stage 1 waits for the gradients of the first microbatch before it sends the
fourth one on; stage 2 waits for the fourth one before it begins with any gradients.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

MICROBATCHES = 8
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def schedule_name(rank: int) -> str:
    if "PP_SCHEDULE" in os.environ:
        return os.environ["PP_SCHEDULE"]
    return "1f1b" if rank == 1 else "gpipe"  # its node has the new default


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layer = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh())
    stage = PipelineStage(layer, rank, world, torch.device("cpu"))
    schedule = SCHEDULES[schedule_name(rank)](
        stage, n_microbatches=MICROBATCHES, loss_fn=torch.nn.functional.mse_loss
    )
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(3):
        if rank == 0:
            schedule.step(torch.randn(32, 16))
        elif rank == world - 1:
            losses: list[torch.Tensor] = []
            schedule.step(target=torch.randn(32, 16), losses=losses)
            print(f"step {step} loss {torch.stack(losses).mean():.3f}", flush=True)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1], [1, 2]]
# culprits_by_stacks = [[2], [0, 1, 2], [0, 1, 2, 3]]
# waiting = [0, 3]
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
