"""Control: all ranks end with status 0 before they have done anything.

Nobody waits for anybody, so it is no hang, and nobody did what was asked, so it is not fine either.
"""

from __future__ import annotations

import sys
from typing import Any

from hangbisect.zoo.case import Case, Truth


def arguments(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    run_usual_step(given)
    sys.exit(0)


CASE = Case(
    id="H24",
    title="all ranks end early with status 0",
    cluster="C12",
    reports=(),
    truth=Truth(outcome="crash", culprit=(0, 1), checkpoint="arguments"),
    uses={"arguments": "arguments"},
    options=("--until", "logs_directory"),
)
