"""Rank 1 waits for a lock file to go that a start of two days ago has left behind.

ROCm/aiter#5269 ("waiting for baton release") and modelscope/modelscope#1778 (a hundred such files
in a shared cache): that the file is there is the lock, and nothing removes it when its maker is
killed. No call of the kernel names it: the rank sleeps, ten times a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def make_data(given: Any) -> Any:
    """Return the data module; rank 1 builds its index below a lock first."""
    import os
    import time

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    def build(folder: str) -> None:
        mark = os.path.join(folder, "building")
        while True:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                time.sleep(0.1)
        os.remove(mark)

    module = run_usual_step(given)
    if rank_number(given) == 1:
        build(os.environ["ZOO_INDEX"])
    return module


@contextlib.contextmanager
def left_behind(place: CasePlace) -> Iterator[Stage]:
    import os
    import time

    folder = place.tmp / "index"
    folder.mkdir()
    (folder / "building").touch()
    before = time.time() - 2 * 86400
    os.utime(folder / "building", (before, before))
    yield Stage(environment={"ZOO_INDEX": str(folder)})


CASE = Case(
    id="J52",
    title="rank 1 waits for a lock file that nobody owns",
    cluster="C8",
    reports=("ROCm/aiter#5269", "modelscope/modelscope#1778"),
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="data_module",
        component=("data",),
        waits_for=("lock",),
        detail="building",
        cause=("lock-file-without-owner",),
    ),
    uses={"data_module": "make_data"},
    stage=left_behind,
)
