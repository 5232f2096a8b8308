"""Control: a torch extension is being built by rank 0, and rank 1 waits for it in FileBaton.wait.

Rank 1's stack is that of the stale lock (I14), but the lock has an owner, who has a compiler that
works: slow, not hung (radixark/miles#3158 took 394 s for its first step).

Here the compiler, for rank 0, compiles a few times before it does what it is asked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

# Compiles something large over and over for a while, and then what it was asked to.
_SLOWLY = """
printf '#include <regex>\\n#include <map>\\n#include <iostream>\\nstd::regex r("a*");' > {file}
end=$(($(date +%s) + 20))
while [ $(date +%s) -lt $end ]; do g++ -O2 -c {file} -o /dev/null; done
exec g++ "$@"
"""


def model(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    extensions = given.context.imports("torch.utils.cpp_extension")
    if rank_number(given) != 0:
        import time

        time.sleep(2)  # so that it is rank 0 that builds
    extensions.load_inline("fused", "int one() { return 1; }", functions=["one"])
    return run_usual_step(given)


@contextlib.contextmanager
def slow_compiler(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.processes import put_on_path

    script = _SLOWLY.format(file=place.tmp / "large.cpp")
    path = put_on_path(place.folder, {"slow-g++": script})
    yield Stage(
        environment={
            "TORCH_EXTENSIONS_DIR": str(place.tmp / "extensions"),
            "CXX": path.partition(os.pathsep)[0] + "/slow-g++",
        }
    )


CASE = Case(
    id="I15",
    title="control: an extension is being built, slowly",
    cluster="C21",
    reports=("radixark/miles#3158", "pytorch/pytorch#189245"),
    truth=Truth(outcome="ok", slow="model"),
    uses={"model": "model"},
    stage=slow_compiler,
    options=("--timeout", "model=30", "--until", "model"),
    needs=("compiler",),
    limit=240.0,
)
