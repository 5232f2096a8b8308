"""Control: rank 1 computes in one call of C that keeps the GIL, for three times its deadline.

No thread of Python runs, the stack is the same at every look, and the core is busy: a tokenizer, a
parser, or a hash of a large file (huggingface/transformers#28139 is a load that seems to hang).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

LIBRARY = """
#include <time.h>
double total(int seconds) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t end = now.tv_sec + seconds;
    double sum = 0;
    while (now.tv_sec < end) {
        for (int term = 1; term < 1000000; term++)
            sum += 1.0 / term;
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return sum;
}
"""


@contextlib.contextmanager
def library(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import processes

    yield Stage(
        environment={"TOTALS": str(processes.compile_library(place.folder, "totals", LIBRARY))}
    )


def model(given: Any) -> Any:
    import ctypes

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        ctypes.PyDLL(os.environ["TOTALS"]).total(24)
    return run_usual_step(given)


CASE = Case(
    id="H38",
    title="control: a call of C that computes for long with the GIL",
    cluster="control",
    reports=("huggingface/transformers#28139",),
    truth=Truth(outcome="ok", slow="model"),
    stage=library,
    uses={"model": "model"},
    options=("--timeout", "model=8", "--until", "model"),
    needs=("gcc",),
    limit=150.0,
)
