"""The last of four ranks writes its log to a pipe that nobody reads any more.

hiyouga/LlamaFactory#10584: all workers stuck in pipe_write, memory taken, GPUs at 0 %, because
the program that started the training had stopped reading. The other ranks just wait for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def collector(place: CasePlace) -> Iterator[Stage]:
    """A log collector that has the pipe open and does not read."""
    from hangbisect.zoo.parts import processes

    with processes.unread_fifo(place.tmp / "collector") as pipe:
        yield Stage(environment={"LOG_PIPE": str(pipe)})


def make_logs(given: Any) -> Any:
    """Return the logs directory; the last rank writes a line for each setting."""
    import os

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    made = run_usual_step(given)
    if rank_number(given) == 3:
        with open(os.environ["LOG_PIPE"], "w") as log:
            for number in range(1000):
                log.write(f"setting {number} has its usual value\n")
                log.flush()
    return made


CASE = Case(
    id="J01",
    title="rank 3 of 4 writes to a pipe that nobody reads",
    cluster="pipes",
    reports=("hiyouga/LlamaFactory#10584", "MakazhanAlpamys/Soup#688"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(3,),
        waiting=(0, 1, 2),
        checkpoint="logs_directory",
        component=("filesystem",),
        waits_for=("pipe",),
        detail="collector",
        cause=("pipe-unread",),
        chain=(r"rank \d+ -> .*collector",),
        explained_by=("collector",),
    ),
    ranks=4,
    stage=collector,
    uses={"logs_directory": "make_logs"},
    options=("--until", "logs_directory"),
)
