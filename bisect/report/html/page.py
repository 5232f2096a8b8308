"""A run as one page of HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...facts import Ranks, Verdict
from ..as_json import from_json
from ..kept.differences import differences
from ..kept.facts import rank_facts
from ..kept.run import KeptRun
from .answer import NOTHING, answer
from .differing import differing
from .graph_picture import graph_picture
from .looks import looks_part
from .shown import Shown
from .stack_tree import stack_trees
from .templates import rendered
from .timeline_picture import time_picture
from .tracebacks import tracebacks
from .trials_answer import trials_answer
from .trials_table import trial_rows

if TYPE_CHECKING:
    from ..kept.redacted import Redactor

_NO_VERDICT = Verdict("interrupted", "", (), 0, 0, None, Ranks())


def html_page(run: KeptRun, redactor: Redactor, *, reported: bool = True) -> str:
    """Return report.html of a run, an isolation or a matrix: complete, for eyes, and of at most
    2 MB. Every text of the run in it has passed `redactor`, and is shown as text.
    `reported`: the starts of an isolation or a matrix lie beside it with reports of their own.
    """
    shown = Shown(redactor)
    parts = _run(run, shown) if run.kind == "run" else _trials(run, shown, reported)
    return rendered(shown, kind=run.kind, folder=run.folder.name, missing=run.missing, **parts)


def _trials(run: KeptRun, shown: Shown, reported: bool) -> dict[str, Any]:
    return {
        "answer": trials_answer(run),
        "trials": trial_rows(run, shown, reported),
    }


def _run(run: KeptRun, shown: Shown) -> dict[str, Any]:
    verdict = from_json(run.verdict) if run.verdict else _NO_VERDICT
    ranks = rank_facts(run)
    told = answer(verdict, ranks, run.folder.name) if run.verdict else NOTHING
    return {
        "answer": told,
        "graph": graph_picture(run, verdict, shown),
        "timeline": time_picture(run, verdict, shown),
        "trees": stack_trees(ranks, verdict, shown),
        "tracebacks": tracebacks(run, verdict),
        "topics": differing(differences(run), shown),
        "ranks": len(ranks) or verdict.world_size,
        "looks": looks_part(ranks, verdict, shown),
    }
