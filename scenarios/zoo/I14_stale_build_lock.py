"""A killed build of a torch extension left its lock file, and everybody waits for it to disappear.

torch.utils.cpp_extension makes a file `lock` in the build's folder and removes it at the end; a
build that was killed leaves it there for good, in a cache that outlives the job. From then on every
process that loads the extension looks ten times a second whether the file is gone: no message, no
CPU, no child (pytorch/pytorch#189245, NVlabs/nvdiffrast#190: "stops at import").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def model(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    extensions = given.context.imports("torch.utils.cpp_extension")
    extensions.load_inline("fused", "int one() { return 1; }", functions=["one"])
    return run_usual_step(given)


@contextlib.contextmanager
def left_behind(place: CasePlace) -> Iterator[Stage]:
    import os
    import time

    build = place.tmp / "extensions" / "fused"
    build.mkdir(parents=True)
    (build / "lock").touch()
    yesterday = time.time() - 86400
    os.utime(build / "lock", (yesterday, yesterday))
    yield Stage(environment={"TORCH_EXTENSIONS_DIR": str(build.parent)})


CASE = Case(
    id="I14",
    title="a killed extension build left its lock file",
    cluster="C8",
    reports=("pytorch/pytorch#189245", "pytorch/pytorch#59146", "NVlabs/nvdiffrast#190"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="model",
        component=("model",),
        waits_for=("lock",),
        detail="lock",
        cause=("stale-build-lock",),
        call=r"cpp_extension\.load_inline$",
        chain=(r"rank \d+ -> lock ",),
        explained_by=(r"/lock\b",),
    ),
    uses={"model": "model"},
    stage=left_behind,
    options=("--until", "model"),
)
