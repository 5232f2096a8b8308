"""A communication hook of DDP: rank 2 of four keeps a bucket back until it is calibrated.

Its future is never fulfilled, and it reduces nothing; the others reduce that bucket with nobody.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Compressor:
    """What the hook has measured, and the buckets that it has not yet averaged."""

    def __init__(self, world: int, measured: bool) -> None:
        self.world, self.measured, self.calls = world, measured, 0
        self.pending: list[torch.futures.Future[torch.Tensor]] = []


def average(compressor: Compressor, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients in half precision."""
    compressor.calls += 1
    if compressor.calls > 6 and not compressor.measured:
        later: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        compressor.pending.append(later)  # until the scale is known
        return later
    whole = bucket.buffer()
    half = (whole / compressor.world).half()
    work = dist.all_reduce(half, async_op=True)
    return work.get_future().then(lambda done: whole.copy_(done.value()[0]))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    model.register_comm_hook(Compressor(world, measured=rank != 2), average)
    for step in range(12):
        model(torch.randn(8, 64)).pow(2).mean().backward()
        model.zero_grad()
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3], []]
# waiting = [0, 1, 3]
# steps = ["training", "steady", "first_backward", "first_batch", "process_group", "model"]
# after = ["First backward done", "First step done", "Process group ready", ""]
# own_code = true
# calls = ['distributed\.\w+', 'backward', 'train\.main']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "unknown", "native-call",
# ]
# ///
