"""The last part of --help: the checkpoints with their deadlines, and the toggles."""

from __future__ import annotations

from ..bisection.toggles import toggles_of
from ..pipelines.pipeline import Pipeline


def epilog(walked: Pipeline) -> str:
    """Return the tables of checkpoints and toggles."""
    return "\n".join([*_checkpoints(walked), "", *_toggles(walked)])


def _checkpoints(walked: Pipeline) -> list[str]:
    lines = [f"checkpoints of {walked.name}, with their deadlines (--timeout [NAME=]SECONDS):"]
    for row in walked.table:
        deadline = "by phase" if row.phases else f"{row.deadline:g} s"
        lines.append(f"  {row.number:2} {row.name:18} {row.title:28} {deadline:>8}")
        for phase in row.phases:
            seconds = "none" if phase.deadline is None else f"{phase.deadline:g} s"
            lines.append(f"     phase {phase.name:40} {seconds:>8}")
    return lines


def _toggles(walked: Pipeline) -> list[str]:
    lines = ["toggles, from as one runs it to safest (* is the default):"]
    for entry in toggles_of(walked.name):
        values = [f"{value}*" if value == entry.default else value for value in entry.values]
        if entry.accepts == "count":
            values = ["N", *values]
        lines.append(
            f"  {entry.flag or entry.variable or entry.name:26} "
            f"{' > '.join(values):42} {entry.kind}"
        )
    return lines
