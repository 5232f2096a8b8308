"""The few lines at the end of a job that ended well.

Apart from those of a hang (terminal.py), which need a diagnosis: ranks wait for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .words import counted, cut, of_ranks, one_line, printable, seconds

if TYPE_CHECKING:
    from ..facts import Verdict


def well_lines(
    verdict: Verdict,
    not_exercised: Sequence[str],
    slowest: str,
    run_dir: str,
    width: int | None = None,
    own: bool = False,
) -> list[str]:
    """Return what is said of a good run. `slowest` is which step took longest, in words; `width` is
    the terminal's, None for a pipe: nothing is cut. `own`: it was a script of the user's own.
    """
    parts = [verdict.pipeline, counted(verdict.world_size, "rank"), seconds(verdict.seconds.total)]
    line = f"OK  {', '.join(p for p in parts if p)}"
    lines = [line + (f"; slowest step {slowest}" if slowest else "")]
    for late in verdict.slow_steps[:3]:
        phase = f" ({late.phase})" if late.phase else ""
        number = f"{late.checkpoint} " if late.checkpoint is not None else ""
        lines.append(
            f"    late: step {number}{late.name}{phase} took {seconds(late.seconds)}, "
            f"allowed {seconds(late.deadline)}, {of_ranks(late.ranks)}"
        )
    if verdict.barrier_opened:
        lines.append(f"    barrier opened: {one_line(verdict.barrier_opened)}")
    if not_exercised:
        lines.append(f"    not exercised: {', '.join(map(one_line, not_exercised))}")
    lines += [f"    report: {run_dir}"] if run_dir else []
    if not own:
        lines.append("    your own job: hangbisect run -- <the command you use today>")
    return [cut(printable(line), width) for line in lines]
