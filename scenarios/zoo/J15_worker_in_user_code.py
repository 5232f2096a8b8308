"""A DataLoader worker of rank 1 is stuck in the dataset's own code; the rank polls for its batch.

The stack that everybody posts is the rank's: _try_get_data, poll (pytorch/pytorch#75147). What
matters is in the child: here it opens a named pipe that nobody writes to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def feed(place: CasePlace) -> Iterator[Stage]:
    """A named pipe without a writer."""
    from hangbisect.zoo.parts import processes

    yield Stage(environment={"FEED": str(processes.unopened_fifo(place.tmp / "feed"))})


class Fed:
    """Texts that come with something from the feed."""

    def __init__(self, texts: Any, stuck: bool) -> None:
        self.texts = texts
        self.stuck = stuck

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        import os

        if self.stuck:
            with open(os.environ["FEED"]) as pipe:
                pipe.read()
        return self.texts[index]


def make_data(given: Any) -> Any:
    """Return the data module with the feed in it."""
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    module = run_usual_step(given)
    stuck = rank_number(given) == 1

    class WithFeed(type(module)):  # type: ignore[misc]
        def setup(self, stage: str) -> None:
            super().setup(stage)
            self.texts: Any = Fed(self.texts, stuck)

    module.__class__ = WithFeed
    return module


CASE = Case(
    id="J15",
    title="a DataLoader worker of rank 1 opens a FIFO without a writer",
    cluster="C2",
    reports=("pytorch/pytorch#75147",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("data",),
        waits_for=("process",),
        detail="worker",
        cause=("pipe-no-writer",),
        call="DataLoader",
        chain=(r"rank \d+ -> process \d+", r"process \d+ -> .*feed"),
        explained_by=("feed",),
    ),
    stage=feed,
    uses={"data_module": "make_data"},
    options=("--num-workers", "1"),
)
