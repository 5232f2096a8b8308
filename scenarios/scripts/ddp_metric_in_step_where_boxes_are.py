"""torchmetrics, dist_sync_on_step: a batch of rank 3 of five has no boxes, and skips the metric.

The forward of the metric sums over all ranks; rank 3 is in the next backward.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import MeanMetric


class Detector(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.layer(pictures)


def boxes_of(step: int, rank: int) -> torch.Tensor:
    count = 0 if (rank, step) == (3, 5) else 3
    return torch.rand(count, 4)


def score(metric: MeanMetric, found: torch.Tensor, boxes: torch.Tensor) -> float | None:
    if not len(boxes):
        return None
    return float(metric((found[: len(boxes)] - boxes).abs().mean()))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Detector())
    metric = MeanMetric(dist_sync_on_step=True)
    for step in range(12):
        found = model(torch.randn(4, 16))
        found.pow(2).mean().backward()
        model.zero_grad()
        now = score(metric, found.detach(), boxes_of(step, rank))
        if rank == 0:
            print(f"step {step}: {now}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "training", "steady", "first_step", "first_backward", "barrier", "first_barrier", "all_gather",
#   "first_all_gather",
# ]
# after = [
#   "First backward done", "First step done",
#   "Barrier passed", "First barrier done", "First all_gather done", "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'backward', 'score', 'metric']
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# ///
