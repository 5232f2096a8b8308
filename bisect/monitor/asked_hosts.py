"""The other hosts of a job whose launcher reaches them by ssh (a loop of ssh, pdsh, mpirun), or by
Slurm without our variables (srun --export=NONE): ranks there have no watch of ours, and from here
nobody sees what they do.

Once nothing moves on this host they are asked as `attach` asks them: by the ssh of the launcher's
own command, or a step beside the job's. That takes some looks there, and changes nothing. Who asks
is given from above (attach/session.py). Monitors that see a part of the job are told by a file
beside the socket of the watcher.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..base.files import write_whole
from ..base.json_codec import Misfit, from_json, to_json
from ..base.lazy_dataclass import dataclass
from ..base.verdict_facts import Verdict
from ..diagnosis.snapshot import Snapshot
from ..evidence.process import variables_of
from ..front.watcher_socket import ALL_HOSTS
from .clocks import OTHER_NODES_LIMIT
from .watcher_report import print_line

if TYPE_CHECKING:
    from ..base.client_program import SshClient
    from ..base.rank_facts import JobFacts, RankFacts
    from ..diagnosis.wait_graph import WaitGraph
    from .watcher import LauncherSupervisor
    from .watcher_verdict import LauncherSnapshot

_SELDOM = 600.0  # seconds between two questions, at the most
_SHARE = 1 / 2  # of the time that the command has run: so long is not asked again
_HEED_LIMIT = 15.0  # seconds beyond that for a monitor to look, and to close its job
_MOST_FILE = 1 << 22  # bytes
# What tells a run from others on its host, and is the same on all (an assignment in a command).
_OF_A_RUN = ("MASTER_PORT", "PMIX_NAMESPACE")
_ASSIGNED = re.compile(r"(?:^|[\s;'\"])([A-Z_]+)=(\w+)(?=$|[\s;'\"])")


class Question(NamedTuple):
    """What other hosts are asked."""

    clients: tuple[SshClient, ...]  # one for each host
    own: int  # a process of the job on this host, 0 where it has no ranks here
    only: Mapping[str, str]  # variables that its ranks have, and others there may not
    slurm: str = ""  # the job of Slurm's whose nodes are asked, where no client is an ssh
    may_end: bool = False  # who has asked may want their ranks ended: they are held for that
    command: tuple[str, ...] = ()  # that was started here


class Judged(NamedTuple):
    """A verdict on all hosts, and what it rests on."""

    verdict: Verdict
    facts: JobFacts
    ranks: tuple[RankFacts, ...]
    graph: WaitGraph


class HeldHosts(Protocol):
    """Hosts that have answered, and wait for what is to be done with the ranks that they showed."""

    async def end_ranks(self) -> list[str]:
        """End these ranks, and what belongs to them; return what each host says, in sentences."""

    async def let_go(self) -> None:
        """Leave them as they are."""


@dataclass(frozen=True)
class HostsAnswer:
    """What all hosts tell together: a verdict, or who goes on; else why they tell nothing."""

    judged: Judged | None = None
    goes_on: str = ""
    trouble: str = ""
    starts_nobody: tuple[str, ...] = ()  # sentences: of no host that answers a rank is known
    silent: Mapping[str, str] = field(default_factory=dict)  # hosts that do not answer, and why
    held: HeldHosts | None = None  # with a verdict, where that was asked for


Ask = Callable[[Question], Awaitable[HostsAnswer]]


class AskedHosts:
    """The questions to the other hosts of one command."""

    def __init__(self, supervisor: LauncherSupervisor) -> None:
        """`supervisor` watches the command."""
        self._its, around = supervisor, supervisor.around
        may_ask = around.joins_nodes and around.starter is None
        self._ask_them = around.ask_hosts if may_ask else None
        self._folder = supervisor.listening.folder
        self._asked_at = float("-inf")
        self._told: set[str] = set()
        self.has_judged = False  # the verdict that is there is that on all hosts
        self.is_void = False  # it was, and its ranks have moved since
        self._starts_nobody: tuple[str, ...] = ()  # as they said last
        self._silent: Mapping[str, str] = {}

    @property
    def starts_nobody(self) -> tuple[str, ...]:
        """What hosts say of which none has a rank, once one was to be there: sentences."""
        is_late = time.monotonic() > self._its.at.began + self._its.around.start_limit
        return self._starts_nobody if is_late else ()

    @property
    def silent(self) -> Mapping[str, str]:
        """The hosts that do not answer where they start nobody, and what came instead."""
        return self._silent if self.starts_nobody else {}

    async def judge(self, outside: LauncherSnapshot) -> bool:
        """Ask them, where no rank is seen here, and say what they tell together; return whether
        there is a verdict now.
        """
        if self._its.verdict is not None or not self._is_due():
            return False
        answer = await self._ask(outside)
        return await self._close(outside, answer)

    async def answer_monitors(self) -> None:
        """Ask them for monitors that see a part of the job, of which nothing moves: these are told,
        and a verdict is said.
        """
        if not self._is_due(is_wanted=True):
            return
        outside = await self._its.look()
        answer = await self._ask(outside)
        if answer is None:
            return
        if not self._its.heard.is_held_back:
            await let_go(answer)
            return
        if not await self._close(outside, answer, tells=True):
            why = answer.goes_on or "a rank may go on by itself before long"
            self._tell_monitors(HostsAnswer(goes_on=why))

    async def _wait_for_monitors(self) -> None:
        """Wait until a monitor ends its job by what it was told: it looks each --stall."""
        until = time.monotonic() + self._its.around.stall + _HEED_LIMIT
        while not (self._its.heard.ends or self._its.has_ended) and time.monotonic() < until:
            await asyncio.sleep(0.1)

    async def take_back(self) -> None:
        """Ask once more, now and then: what was said of them is void where a rank goes on."""
        if not self._is_due():
            return
        answer = await self._ask(await self._its.look())
        if answer is not None:
            await let_go(answer)
        if answer is not None and answer.goes_on:
            self.forget()
            print_line(f"Taken back: it moves again ({answer.goes_on}); watching on")

    def forget(self) -> None:
        """What was said of all hosts is void: a rank moves again."""
        if self.has_judged:
            self._its.verdict, self.is_void = None, True
        self.has_judged = False
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, ALL_HOSTS))

    def _is_due(self, is_wanted: bool = False) -> bool:
        """Return whether to ask now; `is_wanted`: a monitor waits for the answer."""
        now, its = time.monotonic(), self._its
        pause = find_pause(now - its.at.began, its.around.stall, is_wanted)
        return self._ask_them is not None and now > self._asked_at + pause

    async def _ask(self, outside: LauncherSnapshot) -> HostsAnswer | None:
        """Return what all hosts say; None where the launcher reaches none by ssh, or none answers,
        which is said once, or the command has ended meanwhile.
        """
        question = make_question(outside, self._its.pid, self._its.list_ssh_clients())
        around = self._its.around
        may_end, command = around.on_hang == "end", tuple(around.command)
        question = question._replace(may_end=may_end, command=command)
        if self._ask_them is None or not (question.clients or question.slurm):
            return None
        self._asked_at = time.monotonic()
        try:
            answer = await self._ask_them(question)
        except Exception as error:  # the watch of the command goes on without them
            answer = HostsAnswer(trouble=repr(error))
        self._asked_at = time.monotonic()
        self._starts_nobody, self._silent = answer.starts_nobody, answer.silent
        if answer.trouble and answer.trouble not in self._told:
            self._told.add(answer.trouble)
            print_line(f"What ranks on other hosts do is not seen: {answer.trouble}")
        if not (answer.trouble or self._its.has_ended):
            return answer
        await let_go(answer)
        return None

    async def _close(
        self, outside: LauncherSnapshot, answer: HostsAnswer | None, tells: bool = False
    ) -> bool:
        """Say the verdict on all hosts, where there is one, and end the ranks there, if they are to
        be; those of this host are ended with the command. `tells`: monitors here are told first,
        and close their jobs: else they would take what is ended for a crash.
        """
        if answer is None or answer.judged is None:
            return False
        try:
            verdict, facts, ranks, graph = answer.judged
            told = (verdict, facts, Snapshot(ranks), graph)
            if self._its.may_go_on(told):
                return False
            self.has_judged = True
            is_to_end = self._its.around.on_hang == "end" and verdict.outcome == "hang"
            await self._its.close(outside, told, is_to_end)
            if tells:
                self._tell_monitors(answer)
            if tells and is_to_end:
                await self._wait_for_monitors()
            if is_to_end and answer.held is not None:
                for said in await answer.held.end_ranks():
                    print_line(said)
            return True
        finally:
            await let_go(answer)

    def _tell_monitors(self, answer: HostsAnswer) -> None:
        """Write the answer where monitors of the job on this host find it."""
        verdict = None if answer.judged is None else to_json(answer.judged.verdict)
        told = {"at": time.monotonic(), "goes_on": answer.goes_on, "verdict": verdict}
        with contextlib.suppress(OSError):
            write_whole(os.path.join(self._folder, ALL_HOSTS), json.dumps(told).encode())


async def let_go(answer: HostsAnswer) -> None:
    """Leave the ranks of hosts that were held as they are. Never raises."""
    if answer.held is not None:
        with contextlib.suppress(Exception):
            await answer.held.let_go()


def find_pause(ran: float, stall: float, is_wanted: bool) -> float:
    """Return for how many seconds they are not asked again: the longer the command has run, the
    more seldom; not so where a monitor waits for it.
    """
    pause = min(_SELDOM, max(stall, _SHARE * ran))
    return min(pause, OTHER_NODES_LIMIT) if is_wanted else pause


def make_question(
    outside: LauncherSnapshot, launcher: int, earlier: Sequence[SshClient] = ()
) -> Question:
    """Return what is to be asked about the job of a launcher; `earlier`: those by which it has
    started parts of it before, some of which may have ended by now.
    """
    clients = {one.host: one for one in outside.ssh_clients}
    if clients:
        clients = {one.host: one for one in earlier} | clients
    own = launcher if set(outside.rank_of) - {launcher} else 0
    environs = [variables_of(pid) or {} for pid in sorted(outside.rank_of)[:1]]
    only = {n: v for environ in environs for n in _OF_A_RUN if (v := environ.get(n, ""))}
    if not own:
        only = find_common_assignments([one.remote for one in clients.values()])
    in_slurm = outside.has_clients and not clients
    slurm = next((job for one in environs if (job := one.get("SLURM_JOB_ID", ""))), "")
    return Question(tuple(clients.values()), own, only, slurm if in_slurm else "")


def find_common_assignments(commands: Sequence[str]) -> dict[str, str]:
    """Return the variables that tell the run, as all these commands set them alike."""
    each = [dict(_ASSIGNED.findall(command)) for command in commands]
    first = each[0] if each else {}
    return {
        name: value
        for name in _OF_A_RUN
        if (value := first.get(name, "")) and all(one.get(name) == value for one in each)
    }


class ToldOfHosts(NamedTuple):
    """What a monitor reads of that."""

    at: float  # monotonic: when it was written
    goes_on: str
    verdict: Verdict | None


def read_told(path: str) -> ToldOfHosts | None:
    """Return what the watcher whose socket is at `path` was told of all hosts, None for nothing."""
    try:
        with open(os.path.join(os.path.dirname(path), ALL_HOSTS), "rb") as file:
            told = json.loads(file.read(_MOST_FILE))
        verdict = told["verdict"] and from_json(Verdict, told["verdict"])
        return ToldOfHosts(float(told["at"]), str(told["goes_on"]), verdict or None)
    except (OSError, ValueError, KeyError, TypeError, Misfit):
        return None
