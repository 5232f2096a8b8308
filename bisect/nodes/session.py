"""One search for bad nodes, from what was asked for up to the answer: rounds are started until it
is known which nodes or links are bad, or until no more may be started.

nodes.json in its folder has all that is known, and is written after each round. Who resumes answers
from the starts in it first, and comes to the same place: the search is the same where the results
are.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..base.errors import UsageError
from ..base.files import stamp, write_whole
from ..base.json_codec import from_json, to_json
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_command, mask_text
from ..base.words import format_seconds, terminal_width
from ..report.node_search_text import nodes_lines, nodes_report, round_lines
from ..search.node_search import (
    CONFIRM,
    NodesAnswer,
    NodeSearchEnd,
    NodesOutcome,
    NodesStart,
    choose_excluded,
    explain_nodes,
    search_nodes,
    summarize_nodes,
)
from ..search.node_starts import NodeSet, NodeStarts, Round
from ..trials.isolation_request import read_recorded
from ..trials.isolation_session import ask_person, tell
from ..trials.launch import stopping_by_signals
from .engines import Engine, EngineName, check_nodes
from .node_task import PORTS, TaskOrders
from .round_launch import StartedSet, Stopped, launch_round, list_sets

FOUND, NO_FAULT, FAILS, NOT_STARTED, INTERRUPTED = 0, 1, 3, 5, 130
NODES_FILE, REPORT_FILE = "nodes.json", "report.md"
PROBE_LIMIT, COMMAND_LIMIT = 90.0, 600.0  # seconds for a start
# Options of torchrun's that say how many nodes there are, and who they are: they are ours to give.
_TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_STARTED_BY: dict[EngineName, str] = {
    **{"hosts": "ssh", "slurm": "steps of Slurm's", "ray": "tasks of Ray's"},
    "kubernetes": "kubectl exec",
}
_NODE_OPTIONS = ("nnodes", "node-rank", "master-addr", "master-port", "rdzv-endpoint")


@dataclass(frozen=True)
class NodesRequest:
    """What is asked for."""

    nodes: tuple[str, ...]
    engine: EngineName
    command: tuple[str, ...] = ()  # empty: our probe
    limit: float | None = None  # seconds for a start
    confirm: int = CONFIRM
    repeats: int = 1
    max_rounds: int | None = None
    max_time: float | None = None  # seconds
    torch: bool = True
    folder: str | None = None
    resume: str | None = None
    started_in: str = ""
    selector: str = ""  # of pods
    namespace: str | None = None
    yes: bool = False
    json: bool = False
    plain: bool = False
    recorded: tuple[NodesStart, ...] = ()


class _NoMoreRounds(Exception):
    """No more may be started; the text says why."""

    def __init__(self, why: str, interrupted: bool = False) -> None:
        super().__init__(why)
        self.interrupted = interrupted


def find_bad_nodes(request: NodesRequest, engine: Engine) -> int:
    """Search, print the answer, return the exit status. Raises UsageError."""
    check_command(request.command)
    folder = _make_folder(request)
    expectation = _format_expectation(request, folder)
    if request.command and not (request.yes or request.resume):
        if not ask_person(expectation):
            tell("nothing was started")
            return INTERRUPTED
    else:
        tell("\n".join(expectation))
    with stopping_by_signals() as stopping:
        search = NodesSession(request, folder, engine, stopping)
        answer = search.run()
    if request.json:
        print(json.dumps(to_json(_mask_answer(answer)), indent=2, ensure_ascii=False))
    else:
        width = None if request.plain else terminal_width()
        lines = nodes_lines(_mask_answer(answer), folder=str(folder), width=width)
        print("\n".join(lines), flush=True)
    return _exit_status(answer.outcome)


def _exit_status(outcome: NodesOutcome) -> int:
    known = {"found": FOUND, "size": FOUND, "no_fault": NO_FAULT, "not_started": NOT_STARTED}
    return INTERRUPTED if outcome == "interrupted" else known.get(outcome, FAILS)


def check_command(command: Sequence[str]) -> None:
    """Raise UsageError for a command of torchrun's that says itself which nodes there are."""
    ours = [Path(word).name for word in command[:4]]
    if not any(word in _TORCHRUN for word in ours):
        return
    for word in command:
        name = word.partition("=")[0].lstrip("-").replace("_", "-")
        if word.startswith("--") and name in _NODE_OPTIONS:
            raise UsageError(
                f"the command has {word}, and each start is on other nodes",
                "Leave --nnodes, --node-rank, --master-addr and --rdzv-endpoint out: torchrun "
                "takes them from PET_NNODES and others, which are set for each start.",
            )


def _make_folder(request: NodesRequest) -> Path:
    new = os.path.join("runs", f"nodes-{stamp()}-{os.getpid():x}")
    folder = Path(request.resume or request.folder or new)
    if not request.resume and (folder / NODES_FILE).exists():
        raise UsageError(
            f"{folder} has a search in it already",
            f"Go on with it: --resume {folder}; or name another folder with --run-dir.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made: {error.strerror}", "Name another with --run-dir."
        ) from None
    return folder


def _format_expectation(request: NodesRequest, folder: Path) -> list[str]:
    """Return what to tell before the first start."""
    what = "your command" if request.command else "a probe"
    by = _STARTED_BY[request.engine]
    limit = _limit_of(request)
    count = len(request.nodes)
    lines = [
        f"nodes starts {what} on sets of {count} nodes, by {by}, again and again: about 4 rounds "
        f"if one is bad, up to {2 * count.bit_length() + 14} if a link is; no start longer than "
        f"{format_seconds(limit)}."
    ]
    if request.command:
        lines.append(
            "It has to end by itself on any number of nodes, one too: give it few steps. "
            f"What it writes it writes each time. The answer: {folder}/{REPORT_FILE}"
        )
    return lines


def _limit_of(request: NodesRequest) -> float:
    return request.limit or (COMMAND_LIMIT if request.command else PROBE_LIMIT)


def read_nodes_answer(folder: str) -> NodesAnswer:
    """Return what was recorded in a folder. Raises UsageError if there is nothing to go on with."""
    return read_recorded(NodesAnswer, Path(folder) / NODES_FILE, "a search for nodes")


def resume_request(answer: NodesAnswer, folder: str, command: tuple[str, ...]) -> NodesRequest:
    """Return what was asked for when a search began. Raises UsageError where that cannot be had, or
    where another command is given.
    """
    if command and list(answer.command) != mask_command(command):
        raise UsageError(
            f"{folder} is a search with another command: "
            f"{shlex.join(answer.command) or 'our probe'}",
            "Leave the command out, or begin anew without --resume.",
        )
    if answer.options.get("masked") and not command:
        raise UsageError(
            "the command has a secret in it, which was not written down",
            f"hangbisect nodes --resume {folder} -- and the command as it was",
        )
    check_nodes(answer.nodes, folder)
    kept = ("limit", "confirm", "repeats", "torch", "started_in", "selector", "namespace")
    was = {name: answer.options[name] for name in kept if name in answer.options}
    try:
        request = from_json(
            NodesRequest, {**was, "nodes": list(answer.nodes), "engine": answer.engine}
        )
    except ValueError as error:
        raise UsageError(
            f"{folder}/{NODES_FILE} has options that a search does not write: {error}",
            "Begin anew, without --resume.",
        ) from None
    if request.confirm < 1 or not request.repeats >= 1:
        raise UsageError(
            f"{folder}/{NODES_FILE} has options that a search does not write: 'confirm' "
            f"{request.confirm}, 'repeats' {request.repeats}",
            "Begin anew, without --resume.",
        )
    recorded = tuple(start for start in answer.starts if set(start.nodes) <= set(answer.nodes))
    return replace(request, command=command or answer.command, resume=folder, recorded=recorded)


class NodesSession:
    """One search. What is known so far can be had at any time."""

    def __init__(
        self,
        request: NodesRequest,
        folder: Path,
        engine: Engine,
        stopping: threading.Event,
        launch: Callable[..., list[StartedSet]] = launch_round,
    ) -> None:
        """`recorded` starts of the request are answered from before any is made."""
        self._request, self._folder, self._engine = request, folder, engine
        self._stopping, self._launch = stopping, launch
        self._recorded: dict[NodeSet, deque[NodesStart]] = defaultdict(deque)
        for start in request.recorded:
            self._recorded[frozenset(start.nodes)].append(start)
        self._all: list[NodesStart] = []
        self._starts = NodeStarts(request.nodes, request.repeats)
        self._spent, self._rounds = 0.0, 0
        self._failed_to_write = False

    def run(self) -> NodesAnswer:
        """Start rounds until it is known, or until no more may be started; return the answer."""
        end: NodeSearchEnd | None = None
        stop: _NoMoreRounds | None = None
        search = search_nodes(
            self._request.nodes, confirm=self._request.confirm, repeats=self._request.repeats
        )
        try:
            asked = next(search)
            while True:
                results = self._run_round(asked)
                asked = search.send([start.result for start in results])
        except StopIteration as done:
            end = done.value
        except _NoMoreRounds as why:
            stop = why
        answer = self._make_answer(end, stop)
        self._write(answer, report=True)
        return answer

    def _run_round(self, asked: Round) -> list[NodesStart]:
        """Return what came of a round: of what was recorded, else of new starts."""
        self._rounds += 1
        known = {one: self._recorded[one].popleft() for one in asked if self._recorded[one]}
        new = [one for one in asked if one not in known]
        made = {frozenset(start.nodes): start for start in self._start(new)} if new else {}
        found = [replace({**known, **made}[one], round=self._rounds) for one in asked]
        for start in found:
            self._starts.add(frozenset(start.nodes), start.result)
        self._all += found
        if new:
            tell("\n".join(round_lines(self._rounds, found)))
            self._write(self._make_answer(None, _NoMoreRounds("under way", interrupted=True)))
        return found

    def _start(self, sets: Sequence[NodeSet]) -> list[NodesStart]:
        request = self._request
        if request.max_rounds is not None and self._rounds > request.max_rounds:
            raise _NoMoreRounds(f"--max-rounds {request.max_rounds} are over")
        if request.max_time is not None and self._spent >= request.max_time:
            raise _NoMoreRounds(f"--max-time {format_seconds(request.max_time)} is over")
        orders = TaskOrders(
            sets=(),
            numbers=(),
            first_port=(os.getpid() * 97 + self._rounds * len(request.nodes)) % len(PORTS),
            limit=_limit_of(request),
            command=request.command,
            folder=request.started_in if request.command else "",
            torch=request.torch,
        )
        begun = time.monotonic()
        try:
            done = self._launch(
                self._engine, list_sets(sets, request.nodes), orders, self._stopping
            )
        except (Stopped, KeyboardInterrupt):
            raise _NoMoreRounds("ended by a signal", interrupted=True) from None
        finally:
            self._spent += time.monotonic() - begun
        return [
            NodesStart(self._rounds, one.nodes, one.result or "unknown", one.seconds, one.why)
            for one in done
        ]

    def _make_answer(self, end: NodeSearchEnd | None, stop: _NoMoreRounds | None) -> NodesAnswer:
        request = self._request
        known = end or summarize_nodes(self._starts, request.confirm)
        outcome: NodesOutcome = known.outcome
        why = explain_nodes(known)
        if stop is not None:
            outcome, why = "interrupted" if stop.interrupted else "not_resolved", str(stop)
        elif len(known.not_seen) >= len(request.nodes) - 1:
            outcome, why = "not_started", _first_why(self._all)
        return NodesAnswer(
            outcome=outcome,
            nodes=request.nodes,
            command=request.command,
            engine=request.engine,
            starts=tuple(self._all),
            seconds=self._spent,
            bad=known.findings.bad,
            size=known.findings.size,
            unexplained=tuple(map(known.starts.ordered, known.findings.unexplained)),
            not_seen=known.not_seen,
            control=known.starts.ordered(known.control),
            comes_and_goes=known.comes_and_goes,
            exclude=choose_excluded(known),
            why=why,
            next=self._next_step(outcome),
            options=self._options(),
        )

    def _next_step(self, outcome: NodesOutcome) -> str:
        again = shlex.join(("hangbisect", "nodes", "--resume", str(self._folder)))
        if outcome == "interrupted":
            return again
        if outcome == "found":
            return "start the job without these nodes, and have them looked at"
        if outcome == "size":
            return "no node is to blame: look at what grows with their number: limits, memory"
        if outcome == "no_fault" and not self._request.command:
            return "search with the job itself: hangbisect nodes -- COMMAND"
        if outcome == "no_fault":
            return "if it comes and goes: the same with --repeats 8"
        if outcome == "not_started":
            return "see that the node can be reached, and has hangbisect under the same path"
        return f"each start is in {self._folder}/{REPORT_FILE}; --repeats 8 if it comes and goes"

    def _options(self) -> dict[str, object]:
        request = self._request
        return {
            "limit": request.limit,
            "confirm": request.confirm,
            "repeats": request.repeats,
            "max_rounds": request.max_rounds,
            "max_time": request.max_time,
            "torch": request.torch,
            "started_in": request.started_in,
            "selector": request.selector,
            "namespace": request.namespace,
            "masked": list(request.command) != mask_command(request.command),
        }

    def _write(self, answer: NodesAnswer, report: bool = False) -> None:
        """Write down what is known; where that cannot be, say so once and go on."""
        hidden = _mask_answer(answer)
        text = json.dumps(to_json(hidden), indent=2, ensure_ascii=False) + "\n"
        try:
            write_whole(self._folder / NODES_FILE, text.encode(errors="replace"))
            if report:
                page = nodes_report(hidden, folder=str(self._folder))
                write_whole(self._folder / REPORT_FILE, page.encode(errors="replace"))
        except OSError as error:
            if not self._failed_to_write:
                tell(f"{self._folder} cannot be written, going on: {error.strerror}")
            self._failed_to_write = True


def _first_why(starts: Sequence[NodesStart]) -> str:
    said = next((start.why for start in starts if start.why), "")
    return f"nothing could be started: {said}" if said else "nothing could be started"


def _mask_answer(answer: NodesAnswer) -> NodesAnswer:
    """Return the answer without secrets in its command and in what commands said."""
    return replace(
        answer,
        command=tuple(mask_command(answer.command)),
        starts=tuple(replace(start, why=mask_text(start.why)) for start in answer.starts),
        why=mask_text(answer.why),
    )
