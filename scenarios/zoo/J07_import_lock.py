"""A package starts a thread while it is imported; the thread imports from that package.

Import has a lock for each module: the thread waits for the import to end, and the import for
the thread (huggingface/datasets#7756, ray-project/ray#17980: work at the top of a module).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

PACKAGE = """
import threading

def _warm_up():
    from fastmodels import kernels

thread = threading.Thread(target=_warm_up)
thread.start()
thread.join()
"""


@contextlib.contextmanager
def installed(place: CasePlace) -> Iterator[Stage]:
    """A package that ranks can import."""
    folder = place.folder / "fastmodels"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "kernels.py").write_text("")
    yield Stage(environment={"PYTHONPATH": str(place.folder)})


def load_model(given: Any) -> Any:
    """Return the model, with a faster one's package."""
    import importlib

    from hangbisect.zoo.in_rank import run_usual_step

    importlib.import_module("fastmodels")
    return run_usual_step(given)


CASE = Case(
    id="J07",
    title="a thread imports from the package whose import started it",
    cluster="C20",
    reports=("huggingface/datasets#7756", "ray-project/ray#17980"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="model",
        component=("model", "interpreter"),
        waits_for=("thread",),
        cause=("import-deadlock",),
    ),
    stage=installed,
    uses={"model": "load_model"},
)
