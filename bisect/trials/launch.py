"""One launch under `hangbisect run`: started, followed while it runs, ended, and its run folder
read.

Ctrl-C and SIGTERM become an event that every trial looks at, so that each ends what it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import zip_longest
from pathlib import Path
from types import FrameType

from ..base import outcomes
from ..base.errors import NO_SUCH_PROGRAM, NOT_ALLOWED, CannotStart
from ..base.events import Event, Hello, Toggle, decode
from ..base.json_codec import fit_json
from ..base.lazy_dataclass import dataclass
from ..base.node_record import NodeRecord
from ..base.rank_facts import RankFacts
from ..base.rank_history import Stays
from ..base.rank_state import NodeRanks, RankState
from ..base.verdict_facts import HangPlace, Verdict
from ..monitor.child_processes import REPORTS_LATER, REPORTS_VARIABLE
from ..monitor.ending import ProcessFamily, find_monitors, is_alive
from ..monitor.watcher_link import OUTER_VARIABLE, STARTER_VARIABLE, TRIAL_VARIABLE, JobProgress
from ..rank.watch_options import variable_of
from ..report.run_reader.run_files import (
    NodeFiles,
    judge_node_files,
    read_evidence,
    read_verdict,
)
from ..search.cells import RankPosition

OUTPUT = "output.txt"  # in the run folder: what the launch printed
STOP_LIMIT = 30.0  # seconds for `hangbisect run` to end everything
JUST_FORKED = 0.3  # seconds for a child to run its program: only then has it the mark
BEYOND = 90.0  # seconds after its own time limit, for looks, files and the end of it all
MONITORS_LIMIT = 10.0  # seconds for monitors to write and leave, once their ranks have ended
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Launch:
    """What is to be launched. `command` has its launcher in it."""

    command: tuple[str, ...]
    run_dir: Path  # made; verdict.json, output.txt and all else are written there
    environment: Mapping[str, str] = field(default_factory=dict)  # set beside our own
    watch: Mapping[str, str] = field(default_factory=dict)  # {"stall": "10", "on-hang": "end"}
    limit: float | None = None  # seconds; then it is ended: slow if it moved, else hung
    folder: Path | None = None  # where it is started, ours if None


@dataclass(frozen=True)
class LaunchEnd:
    """How a launch ended."""

    status: int | None  # exit status of `hangbisect run`; None: it was killed from outside
    seconds: float
    verdict: Verdict | None  # None: there is none
    trouble: str = ""  # a sentence where it could not be started or judged


class RunningLaunch:
    """A launch under way."""

    def __init__(self, launch: Launch) -> None:
        """Start it. Raises OSError if `hangbisect run` itself cannot be started, or if there is no
        place for its run folder.
        """
        self.launch = launch
        self.began = time.monotonic()
        self._heard, self._lock = JobProgress(), threading.Lock()
        self._mark = ""
        self._ended: LaunchEnd | None = None
        launch.run_dir.mkdir(parents=True, exist_ok=True)
        self._link, theirs = socket.socketpair()
        with theirs, open(launch.run_dir / OUTPUT, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(_PACKAGE), "run", "--", *launch.command],
                cwd=launch.folder,
                env={**os.environ, **launch.environment, **self._options(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read_marks, daemon=True)
        self._reader.start()

    def ranks(self) -> list[RankPosition]:
        """Return where each rank is now, as far as it has spoken, by rank."""
        with self._lock:
            heard = self._heard
            return [
                RankPosition(
                    rank=one.rank,
                    checkpoint=one.step if one.doing is None else None,
                    title=_current_title(one, heard),
                    phase=one.phase,
                    since=one.since,
                    waits=one.held_at is not None,
                )
                for one in sorted(heard.ranks.values(), key=lambda one: one.rank)
            ]

    def wait(self, limit: float | None = None) -> LaunchEnd | None:
        """Return how it ended; None if it is still under way after `limit` seconds."""
        if self._ended is not None:
            return self._ended
        allowed = self.launch.limit
        until = None if allowed is None else self.began + allowed + BEYOND
        if until is not None and time.monotonic() > until:
            return self.stop()
        try:
            status = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        return self._end(status)

    def stop(self) -> LaunchEnd:
        """End it with all that belongs to it, and return how it ended.

        What cannot be ended is left behind, and said.
        """
        if self._ended is not None:
            return self._ended
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        try:
            status = self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            family = ProcessFamily("")
            family.add_rank(self._process.pid)
            family.end()
            try:
                status = self._process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                return self._leave()
        return self._end(status)

    def _options(self, starter: int) -> dict[str, str]:
        """Return the variables that the watch reads its options from."""
        wanted = {**self.launch.watch, "run-dir": str(self.launch.run_dir.resolve())}
        if self.launch.limit is not None:
            wanted["limit"] = str(self.launch.limit)
        variables = {variable_of(name): value for name, value in wanted.items()}
        ours = {
            STARTER_VARIABLE: str(starter),
            REPORTS_VARIABLE: REPORTS_LATER,
            TRIAL_VARIABLE: "1",
        }
        return {**variables, **ours}

    def _read_marks(self) -> None:
        with self._link.makefile("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError, AttributeError):
                    message = json.loads(line)
                    with self._lock:
                        self._mark = message.get("mark", self._mark)
                        self._heard.take(decode(message))

    def _end(self, status: int) -> LaunchEnd:
        self._reader.join(1.0)
        self._link.close()
        trouble = ""
        if status < 0:
            trouble = f"`hangbisect run` was killed from outside (signal {-status})"
            self._end_orphans()
        verdict = find_verdict(self.launch.run_dir)
        unspoken = verdict is None or (verdict.outcome == "crash" and not verdict.where)
        if unspoken and not trouble:
            trouble = self._last_words()
        seconds = time.monotonic() - self.began
        self._ended = LaunchEnd(status if status >= 0 else None, seconds, verdict, trouble)
        return self._ended

    def _leave(self) -> LaunchEnd:
        self._reader.join(1.0)
        self._link.close()
        seconds = time.monotonic() - self.began
        trouble = f"`hangbisect run` (pid {self._process.pid}) could not be ended, and is left"
        self._ended = LaunchEnd(None, seconds, find_verdict(self.launch.run_dir), trouble)
        return self._ended

    def _end_orphans(self) -> None:
        """End what `hangbisect run` would have ended, and remove its socket's folder."""
        if not self._mark:
            return
        time.sleep(JUST_FORKED)
        family = ProcessFamily(self._mark, OUTER_VARIABLE)
        # Monitors find their ranks gone, write what they know, and take their own folders away.
        left = family.spared = self._heard.monitors | find_monitors(OUTER_VARIABLE, self._mark)
        family.end_for_good()
        until = time.monotonic() + MONITORS_LIMIT
        while any(map(is_alive, left)) and time.monotonic() < until:
            time.sleep(0.05)
        family.spared = set()
        family.end_for_good()
        shutil.rmtree(os.path.dirname(self._mark), ignore_errors=True)

    def _last_words(self) -> str:
        """Return the last line that was printed, for a launch without a verdict."""
        try:
            text = (self.launch.run_dir / OUTPUT).read_text(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        ours = [line for line in lines if line.startswith("hangbisect: ")]
        return (ours or lines or [""])[-1].removeprefix("hangbisect: ")[:300]


def run_launch(launch: Launch, stopping: threading.Event | None = None) -> LaunchEnd:
    """Launch and wait for the end; once `stopping` is set, end it."""
    launched = RunningLaunch(launch)
    try:
        while (ended := launched.wait(0.2)) is None:
            if stopping is not None and stopping.is_set():
                return launched.stop()
    except BaseException:
        launched.stop()
        raise
    return ended


def _current_title(one: RankState, heard: JobProgress) -> str:
    if one.doing is None:
        return heard.titles.get(one.step, "")
    return one.doing[-1] if one.doing else ""


def find_verdict(run_dir: Path) -> Verdict | None:
    """Return the verdict of a run: of several nodes the one on all together, else of several
    verdicts (a node each, an attempt each) the one to be shown (outcomes.py). None where there is
    none that can be read.
    """
    found = _read_nodes(run_dir)
    joint = judge_node_files(_last_attempt(found))
    verdicts = [one.verdict for one in found if one.verdict is not None]
    if joint is not None:
        return joint.verdict
    return outcomes.of_all(verdicts) if verdicts else None


def find_rank_facts(run_dir: Path) -> tuple[RankFacts, ...]:
    """Return what was seen of the ranks of a run: of all nodes, else on the node whose verdict is
    shown, if that has evidence; () where there is none.
    """
    found = _read_nodes(run_dir, with_looks=True)
    joint = judge_node_files(_last_attempt(found))
    if joint is not None:
        return joint.ranks
    having = [(one, one.verdict) for one in found if one.verdict is not None]
    if having:
        found.insert(0, having[outcomes.shown([verdict for _, verdict in having])][0])
    return next((one.ranks for one in found if one.ranks), ())


def _last_attempt(nodes: Sequence[NodeFiles]) -> list[NodeFiles]:
    attempts = [one.verdict.attempt for one in nodes if one.verdict is not None]
    last = max(attempts, default=0)
    return [one for one in nodes if one.verdict is not None and one.verdict.attempt == last]


def _read_nodes(run_dir: Path, with_looks: bool = False) -> list[NodeFiles]:
    """Return what lies in each folder of a run; of one node that has all ranks the looks only if
    they are asked for.
    """
    return [_read_node(folder, with_looks) for folder in _list_folders(run_dir)]


def _read_node(folder: Path, with_looks: bool) -> NodeFiles:
    verdict, _ = read_verdict(_read_run_json(folder, "verdict.json"))
    data = _read_run_json(folder, "node.json")
    record, wrong = fit_json(NodeRecord, data) if data is not None else (None, "")
    ranks: tuple[RankFacts, ...] = ()
    if with_looks or record is not None:
        ranks = read_evidence(_read_run_json(folder, "evidence.json") or {}).ranks
    return NodeFiles(verdict, None if wrong else record, ranks)


def read_reached_toggles(run_dir: Path) -> tuple[list[str], bool]:
    """Return the toggles that ranks of a user's own script reported, and whether any reported."""
    events = [event for folder in _list_folders(run_dir) for event in _read_events(folder)]
    names = [event.name for event in events if isinstance(event, Toggle)]
    return names, any(isinstance(event, Hello) for event in events)


def read_executables(run_dir: Path) -> list[str]:
    """Return the paths of the programs that the ranks of a run run in, as they said or as their
    command lines name them, each once.
    """
    events = (event for folder in _list_folders(run_dir) for event in _read_events(folder))
    said = [event.executable for event in events if isinstance(event, Hello)]
    looks = (look for facts in find_rank_facts(run_dir) for look in facts.looks[-1:])
    seen = [look.command[0] for look in looks if look.command]
    return list(dict.fromkeys(one for one in (*said, *seen) if os.path.isabs(one)))


def seconds_at(run_dir: Path, place: HangPlace) -> float | None:
    """Return how long the slowest rank spent in a step and phase; None if none came through it."""
    longest: float | None = None
    for folder in _list_folders(run_dir):
        ranks = NodeRanks(remembers=True)
        for event in _read_events(folder):
            ranks.apply(event)
        for member in ranks:
            for seconds in _stays_at(member.stays, place, ranks.numbers):
                longest = max(longest or 0.0, seconds)
    return longest


def _stays_at(stays: Stays, place: HangPlace, numbers: Mapping[str, int]) -> Iterator[float]:
    """Yield how long a rank was in the step or phase of a pipeline, before any phase of the step if
    that is the place; or in the step of a script of the user's own, each time.
    """
    number = numbers.get(place.checkpoint or "")
    of_steps = [stay for stay in stays.all() if stay.kind in ("step", "phase", "own step")]
    for stay, following in zip_longest(of_steps, of_steps[1:]):
        if stay.kind == "own step":
            name = stay.checkpoint or stay.name
            is_it, end = (name, stay.phase) == (place.checkpoint, place.phase), stay.end
        else:
            phase = stay.name if stay.kind == "phase" else None
            is_it, end = (stay.number, phase) == (number, place.phase), stay.end
            if stay.kind == "step" and following is not None and following.kind == "phase":
                end = following.start
        if is_it and end is not None and not (stay.is_left and end == stay.end):
            yield end - stay.start


def _read_events(folder: Path) -> Iterator[Event]:
    with suppress(OSError), open(folder / "events.jsonl", encoding="utf-8") as lines:
        for line in lines:
            with suppress(ValueError):
                yield decode(json.loads(line))


def _list_folders(run_dir: Path) -> list[Path]:
    """Return the folders of a run's nodes and attempts, an attempt below a node's as well."""
    found = [run_dir]
    with suppress(OSError):
        for path in sorted(run_dir.glob("*-*")):
            if outcomes.is_part(path.name) and path.is_dir():
                found += _list_folders(path)
    return found


def _read_run_json(folder: Path, name: str) -> object:
    with suppress(OSError, ValueError):
        found: object = json.loads((folder / name).read_text(encoding="utf-8"))
        return found
    return None


def check_program(program: str, environ: Mapping[str, str]) -> None:
    """Raise CannotStart where a command with these variables names no program."""
    path = environ.get("PATH", os.defpath)
    if shutil.which(program, path=path) is not None:
        return
    folders = [""] if os.path.dirname(program) else path.split(os.pathsep)
    if program and any(os.path.exists(os.path.join(folder, program)) for folder in folders):
        raise CannotStart(f"{program!r} cannot be started: it may not be executed", NOT_ALLOWED)
    raise CannotStart(f"{program!r} cannot be started: there is no such program", NO_SUCH_PROGRAM)


AT_ONCE = 1.0  # seconds: who signals us and our group as well means one signal
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stopping_by_signals() -> Iterator[threading.Event]:
    """Yield an event that is set by the first signal; a later one is a KeyboardInterrupt.

    Only in the main thread, as signal.signal() requires.
    """
    stopping = threading.Event()
    first = 0.0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not stopping.is_set():
            first = time.monotonic()
            stopping.set()
        elif time.monotonic() - first > AT_ONCE:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
