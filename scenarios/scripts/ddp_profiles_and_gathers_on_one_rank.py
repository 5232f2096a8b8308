"""torch.profiler on rank 1 of four alone: at the end of its schedule its handler gathers the times
of all ranks for a table.
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule


def report(profiler: profile) -> None:
    """Print the time of a step on each rank."""
    mine = sum(one.self_cpu_time_total for one in profiler.key_averages())
    times: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(times, mine)
    print(f"times {times}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    profiler: contextlib.AbstractContextManager[profile | None] = contextlib.nullcontext()
    if rank == 1:
        profiler = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
            on_trace_ready=report,
        )
    with profiler as profiling:
        for step in range(12):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).pow(2).mean().backward()
            optimizer.step()
            dist.barrier()
            print(f"rank {rank} step {step}", flush=True)
            if profiling is not None:
                profiling.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_all_gather_object", "barrier",
#   "all_gather_object", "first_barrier", "process_group", "ddp",
# ]
# after = ["First step done", "Barrier passed", "First barrier done", ""]
# own_code = true
# calls = ['all_gather\w*', 'report', 'distributed\.\w+', 'profile\.step']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
