"""Control: all ranks end with status 0 too early, the last one some seconds after the first.

As H24, on a machine that is busy, or where one rank has more to clean up: while it is at that it
waits for nobody.
"""

from __future__ import annotations

import sys
from typing import Any

from hangbisect.zoo.case import Case, Truth


def arguments(given: Any) -> Any:
    import time

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    run_usual_step(given)
    end = time.monotonic() + 3 * rank_number(given)
    while time.monotonic() < end:
        sorted(range(100_000))
    sys.exit(0)


CASE = Case(
    id="H39",
    title="all ranks end early with status 0, one by one",
    cluster="C12",
    reports=(),
    truth=Truth(outcome="crash", culprit=(0, 1, 2), checkpoint="arguments"),
    ranks=3,
    uses={"arguments": "arguments"},
    options=("--until", "logs_directory"),
)
