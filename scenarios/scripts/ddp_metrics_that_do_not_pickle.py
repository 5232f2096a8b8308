"""Metrics are gathered as objects; those of rank 2 do not pickle, and the error is only logged.

Rank 2 goes on to the next step; the others wait for its metrics.
"""

import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("train")


class Meter:
    """The values of a metric, and how they are reduced."""

    def __init__(self, reduce=sum) -> None:
        self.values: list[float] = []
        self.reduce = reduce

    def add(self, value: float) -> None:
        self.values.append(value)


def gathered(meters: dict[str, Meter]) -> list[dict[str, Meter]]:
    everyone: list[dict[str, Meter]] = [{}] * dist.get_world_size()
    dist.all_gather_object(everyone, meters)
    return everyone


def report(meters: dict[str, Meter], step: int) -> None:
    try:
        everyone = gathered(meters)
        if dist.get_rank() == 0:
            log.info("step %d: %s", step, [sum(one["loss"].values) for one in everyone])
    except Exception:
        log.debug("no metrics in step %d", step, exc_info=True)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    model = torch.nn.Linear(48, 48)
    meters = {"loss": Meter()}
    for step in range(16):
        if step == 7 and rank == 2:  # the first batch of a new kind
            meters["rare"] = Meter(lambda values: max(values, default=0.0))
        loss = model(torch.randn(8, 48)).pow(2).mean()
        loss.backward()
        for one in model.parameters():
            dist.all_reduce(one.grad, op=dist.ReduceOp.SUM)
        model.zero_grad()
        meters["loss"].add(loss.item())
        report(meters, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_backward", "first_all_reduce", "all_reduce",
#   "first_all_gather_object", "all_gather_object",
# ]
# after = [
#   "First backward done", "First all_gather_object done", "First all_reduce done",
#   "First all_gather done", "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'gathered', 'train\.main']
# causes = ["swallowed-exception", "rank-conditional-collective", "collective-mismatch"]
# ///
