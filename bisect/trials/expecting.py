"""What a person is to expect before anything is started: how many starts, and what each does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..bisection.confidence import clean_starts
from ..bisection.effort import expected
from ..bisection.flags import given
from ..bisection.flaky import expected_starts
from ..bisection.launcher_words import ranks
from ..bisection.toggle import Toggle
from ..facts import Trial
from ..report.isolation import duration
from ..report.words import counted

RARE = 0.1  # a hang in one of ten starts
# Arguments of people's scripts that name what a start writes.
_WRITTEN = (
    *("--output-dir", "--output", "--out-dir", "--out", "--logs-dir", "--log-dir", "--logging-dir"),
    *("--logdir", "--save-dir", "--checkpoint-dir", "--ckpt-dir", "--default-root-dir"),
    *("--results-dir", "--work-dir", "--save-path", "--output-path"),
)


def lines(
    command: Sequence[str],
    environ: Mapping[str, str],
    remedies: Sequence[Toggle],
    confirm: int,
    *,
    folder: str,
    limit: float | None,
    gpus: int,
    flaky: float | None = None,
) -> list[str]:
    """Return what to tell before the first start of a user's own command. `flaky`: the confidence
    that is wanted where it is taken for a hang that comes and goes, None where it is not.
    """
    size = expected(remedies, confirm)
    times = f"about {size.about} times, {size.most} if nothing points to the culprit"
    minutes = f"{size.about} to {size.most} min"
    if flaky is not None:
        starts = expected_starts(len(remedies), RARE, flaky)
        times, minutes = f"about {starts} times if it hangs in one start of ten", f"{starts} min"
    count = ranks(command, environ)
    own = f"{counted(count, 'rank')} each" if count else "as many ranks as your command starts"
    devices = f"up to {counted(gpus, 'GPU')}" if gpus else "no GPU here"
    each = f", none longer than {duration(limit)}" if limit is not None else ""
    return [
        f"isolate starts your command again and again: {times}; {own}, {devices}, one start at a "
        f"time{each}.",
        f"If a start takes a minute until it hangs or is past it, that is {minutes}; the first one "
        "tells. --max-trials and --max-time end it sooner.",
        *([] if flaky is None else flaky_lines(len(remedies), (), flaky)[:1]),
        _writes(command, folder),
    ]


def _writes(command: Sequence[str], folder: str) -> str:
    """Return in a sentence what each start writes."""
    found = {flag: given(command, flag) for flag in _WRITTEN}
    own = [f"{flag} {value}" for flag, value in found.items() if value]
    named = f" (it names {', '.join(own)})" if own else ""
    return (
        f"Each start writes a folder below {folder}, and whatever your command writes{named}: "
        "checkpoints, logs, a run in W&B."
    )


def flaky_lines(remedies: int, trials: Sequence[Trial], confidence: float) -> list[str]:
    """Return what to tell before the search for what avoids a hang that comes and goes."""
    clean = clean_starts(RARE, confidence)
    starts = expected_starts(remedies, RARE, confidence)
    took = [trial.seconds for trial in trials]
    each = sum(took) / len(took) if took else None
    long = f", {duration(each * starts)} at {duration(each)} each" if each is not None else ""
    seen = "taken for a hang that comes and goes"
    if trials and all(trial.result == "pass" for trial in trials):
        seen = f"{counted(len(trials), 'start')} and no hang: if there is one, it comes and goes"
    return [
        f"{seen}. If it hangs in one start of ten, {clean} clean starts in a row say that a "
        f"setting avoids it ({confidence:.0%}).",
        f"With {counted(remedies, 'toggle')} that is about {starts} starts{long}. "
        "--max-trials and --max-time end it sooner, with what is known by then.",
    ]
