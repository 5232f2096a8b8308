"""A file:// rendezvous that an earlier job has left behind.

The file is the store: the new ranks find the old ones' answers in it (torch's documentation of
init_process_group: "the file must be removed before"; pytorch/pytorch#13750). With gloo the
addresses of dead processes refuse connections. A control: a crash must be called a crash.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def make_trainer(given: Any) -> Any:
    """Return the Trainer, after a process group by way of a file that has been used before."""
    import os

    import torch.distributed as dist
    from hangbisect.zoo.in_rank import rank, usual

    def meet() -> None:
        file = f"file://{os.path.abspath('rendezvous')}"
        dist.init_process_group("gloo", init_method=file, rank=rank(given), world_size=2)
        dist.barrier()

    earlier = os.fork()  # the job before this one, which ended without a word
    if not earlier:
        meet()
        os._exit(0)
    os.waitpid(earlier, 0)
    meet()
    dist.destroy_process_group()
    return usual(given)


CASE = Case(
    id="I48",
    title="a file:// rendezvous left by an earlier job: a crash",
    cluster="C1",
    reports=("pytorch/pytorch#13750",),
    truth=Truth(
        outcome="crash",
        culprit=(0, 1),
        checkpoint="trainer",
        component=("strategy", "trainer"),
        cause=("stale-rendezvous-file",),
    ),
    uses={"trainer": "make_trainer"},
)
