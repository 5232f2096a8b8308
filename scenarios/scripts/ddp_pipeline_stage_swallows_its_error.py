"""torch.distributed.pipelining, four stages: stage 2 meets a value that is not finite, and raises.

It takes that for a bad batch, leaves the step and goes on to the count of good ones; its neighbours
wait for the activations and gradients of that batch.
"""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


class Block(torch.nn.Module):
    def __init__(self, strict: bool) -> None:
        super().__init__()
        self.layer, self.strict, self.calls = torch.nn.Linear(32, 32), strict, 0

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.strict and self.calls == 11:  # the third microbatch of a step
            raise FloatingPointError("not finite")
        return torch.tanh(self.layer(data))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    block = Block(strict=rank == 2)
    stage = PipelineStage(block, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    for step in range(6):
        good = torch.ones(())
        try:
            if rank == 0:
                schedule.step(torch.randn(16, 32))
            elif rank == world - 1:
                schedule.step(target=torch.randn(16, 32))
            else:
                schedule.step()
            optimizer.step()
        except (FloatingPointError, RuntimeError) as error:
            print(f"rank {rank} leaves out step {step}: {type(error).__name__}", flush=True)
            good.zero_()
        optimizer.zero_grad()
        dist.all_reduce(good, op=dist.ReduceOp.MIN)
        print(f"rank {rank} step {step} good {good.item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# waiting = [0, 1, 3]
# steps = [
#   "process_group", "training", "steady", "first_backward", "first_all_reduce", "all_reduce",
#   "first_recv_object_list", "first_send_object_list",
# ]
# after = [
#   "Process group ready", "First all_reduce done", "First backward done",
#   "First send_object_list done", "First recv_object_list done", "First step done", "",
# ]
# own_code = true
# calls = ['pipelining', '_wait_batch_p2p', '\bstep$', 'distributed\.\w+', 'train\.main']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "message-left-out", "swallowed-exception",
# ]
# ///
