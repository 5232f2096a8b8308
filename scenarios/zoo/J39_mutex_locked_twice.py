"""A native library of rank 0 locks a mutex that the same thread has locked already.

Deadlocks in allocators, loaders and thread pools are native (pytorch/pytorch#75147 and
scikit-learn/scikit-learn#29145 were read by gdb). A futex; its word holds the id of the thread
that waits for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

LIBRARY = """
#include <pthread.h>

static pthread_mutex_t cache = PTHREAD_MUTEX_INITIALIZER;

int lookup(void) {
    return pthread_mutex_lock(&cache);
}

int build_index(void) {
    pthread_mutex_lock(&cache);
    return lookup();
}
"""


@contextlib.contextmanager
def library(place: CasePlace) -> Iterator[Stage]:
    """A library that locks twice."""
    from hangbisect.zoo.parts import processes

    made = processes.compile_library(place.folder, "index", LIBRARY)
    yield Stage(environment={"INDEX_LIBRARY": str(made)})


def make_data(given: Any) -> Any:
    """Return the data module; rank 0 builds an index first."""
    import ctypes
    import os

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    module = run_usual_step(given)
    if rank_number(given) == 0:
        ctypes.CDLL(os.environ["INDEX_LIBRARY"]).build_index()
    return module


CASE = Case(
    id="J39",
    title="a native mutex that rank 0's thread has already locked",
    cluster="C11",
    reports=("pytorch/pytorch#75147", "scikit-learn/scikit-learn#29145"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("lock",),
        cause=("self-deadlock",),
    ),
    stage=library,
    uses={"data_module": "make_data"},
    needs=("gcc",),
)
