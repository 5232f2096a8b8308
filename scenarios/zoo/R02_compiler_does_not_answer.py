"""A compiled forward never ends: inductor has asked for the C++ compiler, and that does not answer.

What people see: the first call of what torch.compile compiles never returns, and as it is the same
call does (pytorch/pytorch#181638, for another reason). Compilers hang on licence servers, on a
build cache that is not there (ccache, sccache) and on network file systems.

Here the compiler of CXX waits for a word from a server that accepts and never answers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def compiler_waits(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers
    from hangbisect.zoo.parts.processes import put_stuck_on_path

    with servers.silent_server() as port:
        path = put_stuck_on_path(place.folder, "licensed-g++", port)
        compiler = path.partition(os.pathsep)[0] + "/licensed-g++"
        cache = str(place.tmp / "inductor")
        yield Stage(environment={"CXX": compiler, "TORCHINDUCTOR_CACHE_DIR": cache})


CASE = Case(
    id="R02",
    title="compiled, the C++ compiler does not answer",
    cluster="C21",
    reports=("pytorch/pytorch#181638",),
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        checkpoint="replay",
        component=("module",),
        waits_for=("process",),
        cause=("child-program",),
        avoids=("compile=off", "compile=eager"),
    ),
    pipeline="replay",
    ranks=1,
    launcher="python",
    options=("--compile", "inductor", "--timeout", "first_forward=40"),
    stage=compiler_waits,
    needs=("compiler",),
    limit=240.0,
)
