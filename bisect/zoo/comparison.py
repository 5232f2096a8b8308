"""Runs a case: its world, its job, its verdict, and nothing of it is left; what is right and what
is wrong in the answer, the shares of many, and the table that `zoo run` prints, a row a case.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ..base.facts import Level, RankId, Verdict, Wait
from ..base.json_codec import to_json
from ..base.launchers import DIALECTS
from ..base.outcomes import STANDS_STILL
from ..base.words import format_ranges, format_ranks
from ..monitor.child_processes import REPORTS_LATER, REPORTS_VARIABLE
from ..report.run_files import read_verdict
from . import keeper
from .case import Case, CasePlace, Stage, Truth
from .case_files import CaseFile

MARK = "HANGBISECT_ZOO"  # in the environment of every process of a case's job
USUAL_OPTIONS = ("--stall", "10")  # before the case's own options
STARTUP_OPTIONS = ("--fast-dev-run", "1")
TIMED_OUT = -9
SETTLES = 10.0  # seconds for which a silent verdict on a hang stands before its job is ended
stopping = threading.Event()  # set: whatever runs in other threads is to end now
Ask = Callable[[str], list[str]]  # of the keeper
_PACKAGE = Path(__file__).resolve().parents[1]
_NOT_OURS = (  # what a launcher, an account or a cluster of the user's would mix into a case
    *(name for words in DIALECTS.values() for name in words.prefixes),
    *("HANGBISECT_", "WANDB_", "HF_", "HUGGING", "TRANSFORMERS_", "TOKENIZERS_"),
    *("GLOO_", "NCCL_", "KUBERNETES_", "XDG_", "OMP_"),
)


@dataclass(frozen=True)
class CaseRun:
    """How a case's job ended."""

    status: int  # of the launcher; TIMED_OUT
    seconds: float
    verdict: Verdict | None
    output: str
    left: tuple[str, ...] = ()  # command lines of processes that it left behind


def run_case(
    case: Case, module: str, source: str, also: Sequence[str] = (), keep: Path | None = None
) -> CaseRun:
    """Run `case`, whose module is called `module` and reads `source`.

    `also` are words for the pipeline after the case's own. With `keep` the run folder and what was
    printed are copied there.
    """
    mark = f"{MARK}={os.getpid()}-{time.monotonic_ns()}"
    with _make_folder(mark) as (folder, ask):
        place = CasePlace(folder / "job", folder / "s")
        for made in (place.folder, place.tmp, *map(Path, _private_folders(folder).values())):
            made.mkdir(mode=0o700)
        (place.folder / f"{module}.py").write_text(source, encoding="utf-8")
        with contextlib.ExitStack() as world:
            stage = world.enter_context(case.stage(place)) if case.stage else Stage()
            began = time.monotonic()
            status = _run_job(
                case, case_command(case, module, stage, also), stage, folder, mark, ask
            )
            seconds = time.monotonic() - began
            left = ask("left 5")
        left += ask("stuck 5")
        output = (folder / "output").read_text(errors="replace")
        if keep:
            _copy_run(place.folder / "run", folder / "output", keep)
        return CaseRun(status, seconds, _find_verdict(folder), output, tuple(left))


def case_command(case: Case, module: str, stage: Stage, also: Sequence[str] = ()) -> list[str]:
    """Return the words that start the job of a case."""
    launcher = [sys.executable]
    if case.launcher == "torchrun":
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc_per_node={case.ranks}"]
    uses = [
        word
        for step, function in case.uses.items()
        for word in ("--use", f"{step}={module}:{function}")
    ]
    walked = STARTUP_OPTIONS if case.pipeline == "startup" else ("--pipeline", case.pipeline)
    options = [*walked, *USUAL_OPTIONS, "--run-dir", "run", *uses]
    options += [*case.options, *stage.options, *also]
    return [*stage.prefix, *launcher, str(_PACKAGE), *options]


def _run_job(case: Case, words: list[str], stage: Stage, folder: Path, mark: str, ask: Ask) -> int:
    """Run the job; return its status, TIMED_OUT if it had to be ended: one that is to hang is, too,
    when nothing more is to be heard but that its step's deadline is over.
    """
    name, _, value = mark.partition("=")
    environ = {**_make_environ(folder), **case.environment, **stage.environment, name: value}
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            words,
            cwd=folder / "job",
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until = time.monotonic() + case.limit
    while time.monotonic() < until and not stopping.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
        if case.truth.outcome == "hang" and _has_long_been_silent(folder):
            break
    ask("end")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    return TIMED_OUT


def _has_long_been_silent(folder: Path) -> bool:
    """Return whether a verdict that says so has stood for SETTLES: it only waits for a deadline."""
    file = folder / "job" / "run" / "verdict.json"
    with contextlib.suppress(OSError, ValueError):
        is_silent = json.loads(file.read_text())["outcome"] == "silent"
        return is_silent and time.time() > file.stat().st_mtime + SETTLES
    return False


def _make_environ(folder: Path) -> dict[str, str]:
    """Return this environment without what would mix into a case, and with homes of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_NOT_OURS) and not name.lower().endswith("_proxy")
    }
    packages = site.getuserbase()  # of `pip install --user`: HOME will be another
    always = {"PYTHONUNBUFFERED": "1", "WANDB_SILENT": "true", "PYTHONUSERBASE": packages}
    always[REPORTS_VARIABLE] = REPORTS_LATER  # the verdict is compared, and nobody reads a report
    return {**kept, **always, **_private_folders(folder)}


def _private_folders(folder: Path) -> dict[str, str]:
    """Return folders by variable; names are short, for sockets lie in some of them."""
    return {
        "HOME": str(folder / "h"),
        "XDG_RUNTIME_DIR": str(folder / "x"),
        "TMPDIR": str(folder / "t"),
    }


@contextlib.contextmanager
def _make_folder(mark: str) -> Iterator[tuple[Path, Ask]]:
    """Make a folder, and a keeper for it: that outlives us, ends the job and removes the folder."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-"))
    program = [sys.executable, "-I", "-S", keeper.__file__, mark, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        program, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        tell, hear = process.stdin, process.stdout
        assert tell is not None
        assert hear is not None

        def ask(words: str) -> list[str]:
            print(words, file=tell, flush=True)
            answer: list[str] = json.loads(hear.readline() or "[]")
            return answer

        yield folder, ask
        # Popen's end of the block closes its input, and waits.


def _find_verdict(folder: Path) -> Verdict | None:
    """Return the verdict: from the run folder, or where it went when that could not be had."""
    for file in [folder / "job" / "run" / "verdict.json", *folder.glob("[xt]/**/verdict.json")]:
        with contextlib.suppress(OSError, ValueError):
            return read_verdict(json.loads(file.read_text()))[0]
    return None


def _copy_run(run: Path, output: Path, keep: Path) -> None:
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir(parents=True)
    shutil.copy(output, keep / "output.txt")
    for file in run.rglob("*"):
        if file.is_file() and not file.is_symlink():  # a FIFO is none: opening it would block
            target = keep / file.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


Asks = Literal["hang", "crash", "control"]  # a control must not be called either
Right = Literal["right", "unknown", "wrong", ""]  # "": not asked


@dataclass(frozen=True)
class ComparedAnswer:
    """One case's answer, compared with the truth."""

    id: str
    title: str
    asks: Asks
    wrong: tuple[str, ...] = ()  # what is wrong of outcome, culprit, checkpoint, ..., in words
    component: Right = ""
    cause: Right = ""
    said: Mapping[str, Any] = field(default_factory=dict)  # the tool's words on what was compared
    level: Level | None = None  # of its cause
    blamed: tuple[int, ...] = ()  # ranks that only wait, and were called culprits
    to_verdict: float | None = None  # seconds after the clock ran out
    seconds: float = 0.0  # of the whole job
    skipped: str = ""  # why it was not run
    left: tuple[str, ...] = ()  # processes that the job left behind

    @property
    def located(self) -> bool:
        """Outcome, ranks, checkpoint and what is waited for are right."""
        return not self.wrong

    @property
    def good(self) -> bool:
        """Nothing that was said is wrong; that the cause is not known is not."""
        return self.located and "wrong" not in (self.component, self.cause)


def find_what_is_asked(case: Case) -> Asks:
    """Return what is to be seen in a case. A job that is slow beyond its limit counts as a hang."""
    outcomes: dict[str, Asks] = {"ok": "control", "crash": "crash"}
    return outcomes.get(case.truth.outcome, "hang")


def compare_verdict(case: Case, verdict: Verdict | None, seconds: float = 0.0) -> ComparedAnswer:
    """Return what is right of `verdict` (None: there was none)."""
    truth = case.truth
    if verdict is None:
        return ComparedAnswer(
            case.id,
            case.title,
            find_what_is_asked(case),
            wrong=("no verdict",),
            cause=_compare_cause(truth, None),
            seconds=seconds,
        )
    culprit, cause = verdict.ranks.culprit, verdict.cause
    wrong = _find_wrong(truth, verdict)
    return ComparedAnswer(
        case.id,
        case.title,
        find_what_is_asked(case),
        wrong=wrong,
        component=_compare_component(truth, verdict),
        cause=_compare_cause(truth, cause.id if cause else None),
        said={
            "outcome": verdict.outcome,
            "culprit": list(culprit),
            "checkpoint": verdict.checkpoint.name if verdict.checkpoint else None,
            "component": verdict.component,
            "call": verdict.call,
            "waits_for": to_json(verdict.waits_for),
            "cause": cause.id if cause else None,
        },
        level=cause.level if cause else None,
        blamed=tuple(rank for rank in culprit if rank in truth.waiting),
        to_verdict=verdict.seconds.to_verdict,
        seconds=seconds,
    )


def _find_wrong(truth: Truth, verdict: Verdict) -> tuple[str, ...]:
    outcome = "hang" if verdict.outcome in STANDS_STILL else verdict.outcome
    if outcome != truth.outcome:
        return (f"outcome {verdict.outcome}",)
    if truth.outcome == "ok":
        listed = [step.phase or step.name for step in verdict.slow_steps]
        listed += [step.name for step in verdict.slow_steps]
        return () if truth.slow in (None, *listed) else (f"slow steps {listed or 'none'}",)
    wrong = []
    culprit = set(verdict.ranks.culprit)
    if truth.outcome == "crash":
        right = bool(culprit) and culprit <= set(truth.culprit) if truth.culprit else True
    else:
        right = culprit == set(truth.culprit)
    if not right:
        wrong.append(f"culprit {_format_culprits(culprit)}")
    checkpoint = verdict.checkpoint.name if verdict.checkpoint else None
    if truth.checkpoint and checkpoint != truth.checkpoint:
        wrong.append(f"checkpoint {checkpoint}")
    return (*wrong, *_find_wrong_wait(truth, verdict.waits_for))


def _find_wrong_wait(truth: Truth, wait: Wait | None) -> tuple[str, ...]:
    kind = wait.kind if wait else "nothing"
    if truth.waits_for and kind not in truth.waits_for:
        return (f"waits for {kind}",)
    told = f"{wait.process or ''} {wait.detail}" if wait else ""
    return () if re.search(truth.detail, told) else (f"detail {told.strip()!r}",)


def _compare_component(truth: Truth, verdict: Verdict) -> Right:
    if not truth.component:
        return ""
    return "right" if verdict.component in truth.component else "wrong"


def _compare_cause(truth: Truth, said: str | None) -> Right:
    """A truth without a cause: then none may be said of a hang, and nothing is asked of others."""
    if not truth.cause:
        return ""
    if said is None or said == "unknown":
        return "right" if "unknown" in truth.cause else "unknown"
    return "right" if said in truth.cause else "wrong"


def format_shares(answers: Sequence[ComparedAnswer]) -> str:
    """Return the last line: how many of all were right, skipped ones left out."""
    run = [answer for answer in answers if not answer.skipped]
    hangs, crashes, controls = (
        [answer for answer in run if answer.asks == asked] for asked in get_args(Asks)
    )
    caused = [answer for answer in run if answer.cause]
    wrong = [a.level for a in caused if a.cause == "wrong"]
    fitting = [a for a in caused if a.level == "fits"]
    blamed = sum(len(answer.blamed) for answer in run)
    false = [answer for answer in controls if answer.said.get("outcome") in ("hang", "slow")]
    causes = sum(answer.cause == "right" for answer in caused)
    return ", ".join(
        [
            f"located {_format_share(sum(a.located for a in hangs), len(hangs))}",
            f"crashes {_format_share(sum(a.located for a in crashes), len(crashes))}",
            f"cause {_format_share(causes, len(caused))}",
            f"wrong of those called seen {wrong.count('seen')}",
            f"wrong of those that fit {wrong.count('fits')} of {len(fitting)}",
            f"waiting ranks blamed {blamed}",
            f"controls: {len(false)} false hangs of {len(controls)}",
        ]
    )


def _format_share(right: int, of: int) -> str:
    return f"{right} of {of}" + (f" ({100 * right / of:.0f} %)" if of else "")


_WIDTHS = (5, 46, 34, 10, 32, 5)
COLUMNS = ("case", "what", "located", "component", "cause", "s")


def format_head() -> str:
    """Return the row of names."""
    return _join_cells(COLUMNS)


def format_answer(answer: ComparedAnswer) -> str:
    """Return the row of a case; the last column: seconds to the verdict after the clock ran out."""
    if answer.skipped:
        return _join_cells((answer.id, answer.title, f"skipped: {answer.skipped}"))
    located = "right" if answer.located else "WRONG " + ", ".join(answer.wrong)
    after = "" if answer.to_verdict is None else f"{answer.to_verdict:.1f}"
    component = _format_part(answer.component, answer.said.get("component"))
    cause = _format_part(answer.cause, answer.said.get("cause"))
    if answer.level is not None and answer.cause:
        cause += f" {answer.level}"
    return _join_cells((answer.id, answer.title, located, component, cause, after))


def _format_part(right: str, said: object) -> str:
    return f"WRONG {said}" if right == "wrong" else right or "-"


def _join_cells(cells: Sequence[str]) -> str:
    """Return cells side by side. One that is too wide pushes the others on: nothing is cut."""
    return "  ".join(
        f"{cell:{width}}" for cell, width in zip(cells, _WIDTHS, strict=False)
    ).rstrip()


def list_cases(cases: Sequence[CaseFile], why_not: Sequence[str]) -> str:
    """Return the list of all cases; `why_not`: why each cannot be run here, "" if it can."""
    lines = []
    for kept, why in zip(cases, why_not, strict=True):
        case = kept.case
        size = f"{case.ranks} rank{'s' if case.ranks > 1 else ''}"
        lines.append(
            f"{case.id:5} {case.truth.outcome:5} {case.cluster:8} {size:8} {case.title}"
            + (f"  ({why})" if why else "")
        )
    return "\n".join(lines)


def describe_case(kept: CaseFile, why_not: str) -> str:
    """Return all there is to tell of one case."""
    case, truth = kept.case, kept.case.truth
    facts = {
        "outcome": truth.outcome,
        "culprit": format_ranks(truth.culprit),
        "waiting": format_ranks(truth.waiting),
        "checkpoint": truth.checkpoint,
        "component": _join_accepted(truth.component),
        "waits for": " ".join([_join_accepted(truth.waits_for), truth.detail]).strip(),
        "cause": _join_accepted(truth.cause),
        "avoided by": _join_accepted(truth.avoids),
        "slow step": truth.slow,
        "ranks": f"{case.ranks}, started by {case.launcher}",
        "reports": ", ".join(case.reports),
        "not here": why_not,
        "file": str(kept.file),
    }
    lines = [f"{name:11} {value}" for name, value in facts.items() if value]
    return "\n".join([f"{case.id}  {case.title}", "", kept.story, "", *lines])


def _join_accepted(accepted: Sequence[str]) -> str:
    return " or ".join(accepted)


def _format_culprits(ranks: set[RankId]) -> str:
    return format_ranges(ranks) or "none"
