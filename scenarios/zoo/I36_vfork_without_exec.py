"""Rank 1 starts a program with vfork(), and the child never gets as far as exec.

The parent of a vfork stands still in the kernel, state D, until its child has found its program
(vfork(2)). Programs on a file system that went away do this to `subprocess` too
(Garden-AI/rootstock#167 is such a file system).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

LIBRARY = """
#include <unistd.h>
int start_compiler(void) {
    int child = vfork();
    if (child == 0)
        for (;;) pause();
    return child;
}
"""


@contextlib.contextmanager
def library(place: CasePlace) -> Iterator[Stage]:
    """A library that starts a program in that way."""
    from hangbisect.zoo.parts import processes

    made = processes.compile_library(place.folder, "fastload", LIBRARY)
    yield Stage(environment={"FASTLOAD_LIBRARY": str(made)})


def load_model(given: Any) -> Any:
    """Return the model; on rank 1 after a native library has started a helper."""
    import ctypes
    import os

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 1:
        ctypes.CDLL(os.environ["FASTLOAD_LIBRARY"]).start_compiler()
    return model


CASE = Case(
    id="I36",
    title="rank 1 in vfork, its child never execs: state D",
    cluster="C16",
    reports=("Garden-AI/rootstock#167",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="model",
        component=("model",),
        waits_for=("process",),
        cause=("vfork-child",),
    ),
    stage=library,
    uses={"model": "load_model"},
    needs=("gcc",),
)
