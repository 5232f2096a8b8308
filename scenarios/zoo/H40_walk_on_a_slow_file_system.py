"""Control: rank 1 opens a dozen files of a file system that takes four seconds for each.

A cold directory of small files on Lustre or NFS: one line of Python, no bytes to speak of, and
each time another file (Garden-AI/rootstock#167 is such a file system). FIFOs stand for the files:
open() waits for the other end, as it does there for the server.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

FILES = 12

SERVER = """
import time
for number in range(int(sys.argv[2])):
    time.sleep(4)
    os.close(os.open(f"{sys.argv[1]}/{number}", os.O_WRONLY))
threading.Event().wait()
"""


def data_module(given: Any) -> Any:
    from pathlib import Path

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        for number in range(FILES):
            Path(os.environ["SHARDS"], str(number)).read_bytes()
    return run_usual_step(given)


@contextlib.contextmanager
def slow_files(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import processes
    from hangbisect.zoo.parts.processes import helper

    for number in range(FILES):
        processes.unopened_fifo(place.tmp / str(number))
    with helper(f"ready()\n{SERVER}", place.tmp, FILES):
        yield Stage(environment={"SHARDS": str(place.tmp)})


CASE = Case(
    id="H40",
    title="control: small files that take 4 s each to open",
    cluster="control",
    reports=("Garden-AI/rootstock#167",),
    truth=Truth(outcome="ok", slow="data_module"),
    uses={"data_module": "data_module"},
    stage=slow_files,
    options=("--timeout", "data_module=12", "--until", "data_module"),
    limit=240.0,
)
