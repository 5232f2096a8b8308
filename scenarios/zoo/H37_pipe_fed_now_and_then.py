"""Control: a file system that is slow: rank 0 reads its list from a FIFO, a line every six seconds.

One read() that never changes its place; between two lines nothing of the job moves at all.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

FEEDER = """
import time
with open(sys.argv[1], "w", buffering=1) as pipe:
    for line in range(7):
        time.sleep(6)
        print(line, file=pipe)
threading.Event().wait()
"""


def data_module(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 0:
        with open(os.environ["LIST"]) as listed:
            for expected in range(7):
                assert int(listed.readline()) == expected
    return run_usual_step(given)


@contextlib.contextmanager
def slow_list(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import processes
    from hangbisect.zoo.parts.processes import helper

    path = processes.unopened_fifo(place.tmp / "list")
    with helper(f"ready()\n{FEEDER}", path):
        yield Stage(environment={"LIST": str(path)})


CASE = Case(
    id="H37",
    title="control: a FIFO that is fed a line every six seconds",
    cluster="control",
    reports=("Garden-AI/rootstock#167",),
    truth=Truth(outcome="ok", slow="data_module"),
    uses={"data_module": "data_module"},
    stage=slow_list,
    options=("--timeout", "data_module=12", "--until", "data_module"),
    limit=240.0,
)
