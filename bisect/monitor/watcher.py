"""The watch from outside, of `hangbisect run`: a process beside the command.

It sees what no rank can report: a launcher that starts no rank, a script of which no rank speaks
to a monitor, the time limit of the whole, and what is left when all is over.

The command belongs to the front (front/supervise.py), and needs none of this. Whatever fails
here is said once; then the command runs on without us, and nothing of it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..base import events
from ..base.outcomes import CUT_SHORT
from ..rank.exit_proxy import EXIT_STATUS
from .clocks import Moments
from .watcher_link import OUTER_VARIABLE, JobProgress, SupervisedCommand, SupervisorSocket

if TYPE_CHECKING:
    from ..base.client_program import SshClient
    from ..base.rank_facts import Ended, RestartedProcess
    from ..base.verdict_facts import Verdict
    from ..front.watcher_socket import WatcherSocket
    from .asked_hosts import AskedHosts
    from .clocks import NodeWait
    from .ended_children import EndedChildren
    from .ending import ProcessFamily
    from .other_agents import OtherAgents
    from .server_readiness import ServerReadiness
    from .watcher_verdict import LauncherJudgement, LauncherSnapshot

TICK = 0.25  # seconds
QUIET_TICK = 5.0  # once ranks have spoken: their monitors look, and tell us
SAMPLE_EVERY = 1.0
NAMES_AFTER = 2  # times `stall` that what stirs is looked at, for what its threads are
RARELY = 30.0  # seconds between samples of a command that has run for long and tells nothing
PING_EVERY = 2.0  # seconds between two words to the front, at the end
LOOKS_LIMIT = 30.0  # seconds for some looks, and what others say of them, on a busy machine
SUSPENDED = 3.0  # seconds too late for a tick: we, and with us the job, were not running
ENDED_RANKS_LIMIT = 15.0  # seconds for a command to end after a verdict has ended its ranks


class LauncherSupervisor:
    """One command, and what is known of it from outside."""

    def __init__(
        self, around: SupervisedCommand, listening: WatcherSocket, front: socket.socket, pid: int
    ) -> None:
        """Needs a running loop. The command's process is `pid`, the child of the `front`."""
        self.around = around
        self.heard = JobProgress()
        self.verdict: Verdict | None = None  # made from outside
        self.pid, self.listening, self._front = pid, listening, front
        self._front_pid = _find_parent(pid)
        self.at = Moments()
        self.has_ended = False
        self.is_stopped = False  # by us
        self._failed = False
        self.tasks: set[int] = set()  # ranks that are not below the launcher
        self._told_node_wait = ""
        self._node_wait: NodeWait | None = None
        self._wake = asyncio.Event()
        self.socket = SupervisorSocket(self.hear, self._hear_front, self.stop)
        self._family_found: ProcessFamily | None = None
        self._stillness: Any = None
        self._ended: EndedChildren | None = None  # processes that come in the place of others
        self.reports: Any = None
        self.agents: OtherAgents | None = None  # of a job on several nodes, before it has ranks
        self._hosts_asked: AskedHosts | None = None

    async def run(self) -> None:
        """Watch the command to its end, write what is known, and tell the front the status."""
        self.socket.listen(self.listening.descriptor, self._front, self.around.starter)
        while not (self.has_ended or self.is_stopped):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._tick())
            self._wake.clear()
            if not self._failed:
                began = time.monotonic()
                await self._try(self._watch)
                if time.monotonic() < began + LOOKS_LIMIT:
                    self.at.ticked = time.monotonic()  # to look takes its time, and is no pause
        pinging = asyncio.create_task(self._ping())
        await self._leave_agents("its command has ended")
        await self._try(self._finish)
        pinging.cancel()
        status = self._given_status()
        self.socket.tell_front({"t": "left", "status": status, "untidy": self._failed})

    def _tick(self) -> float:
        if self._failed:
            return RARELY
        waits = self.heard.ranks and not self.at.ranks_ended
        return self.readiness.find_pause(QUIET_TICK) if waits else min(TICK, self.around.stall / 4)

    async def _try(self, what: Callable[[], Awaitable[None]]) -> None:
        """Do it; if it fails, say so once, and do as little as possible from then on."""
        try:
            await what()
        except Exception as error:
            if not self._failed and not self.has_ended:
                from .watcher_report import print_line

                print_line(
                    f"The watch from outside failed, the command goes on without it: {error!r}"
                )
            if os.environ.get("HANGBISECT_DEBUG"):
                traceback.print_exc()
            self._failed = True

    # ---- what is heard ---------------------------------------------------------------------------

    def hear(self, data: bytes) -> None:
        """Take in a message of a monitor, and pass it on to who started us."""
        event = events.decode(json.loads(data))
        self.heard.take(event)
        if isinstance(event, events.Answered):
            from .watcher_report import print_answer

            print_answer(event.text)
        if isinstance(event, events.TakenBack) and self._hosts_asked is not None:
            self._hosts_asked.forget()
        if isinstance(event, events.Verdict | events.Hello | events.TakenBack | events.HeldBack):
            self._wake.set()
        self._pass_on(data)

    def _hear_front(self, message: Mapping[str, Any]) -> None:
        kind = message["t"]
        if kind in ("ended", "gone"):
            self.has_ended = True
            self._wake.set()
            if kind == "gone":  # killed, and with it the command: no process is left to tell
                self._leave_now()
        elif kind == "stop":
            self.stop()
        elif kind == "leave":
            self._leave_now()

    def _leave_now(self) -> None:
        from ..front.watcher_socket import remove_watcher_socket

        remove_watcher_socket(self.listening)
        self.socket.tell_front({"t": "left", "status": self._given_status()})
        os._exit(0)

    def _pass_on(self, data: bytes) -> None:
        if self.around.starter is not None:
            with contextlib.suppress(OSError):
                os.write(self.around.starter, data + b"\n")

    def stop(self) -> None:
        """End everything now."""
        self.is_stopped = True
        self._wake.set()

    async def _ping(self) -> None:
        while True:
            self.socket.tell_front({"t": "busy"})
            await asyncio.sleep(PING_EVERY)

    # ---- while it runs -------------------------------------------------------------------------

    async def _watch(self) -> None:
        at, now = self.at, time.monotonic()
        late = now - at.ticked - self._tick()
        at.ticked = now
        if late > SUSPENDED:
            at.skip(now, late)
            self._node_wait = None
        await self.readiness.check(now)
        if self.heard.ranks:
            await self._leave_agents("its ranks have started")
            await self._follow_monitors(now)
            return
        if self.agents is not None and self.agents.question:
            await self._answer_agents(self.agents.question)
            return
        if now - at.sampled > self.find_pause(now):
            at.sampled = now
            self.sample(now)
        limit = self.around.limit
        is_over = limit is not None and now > at.began + limit
        if self.verdict is None or (is_over and self.around.on_hang == "end"):
            await self._look_at_clocks(now)
        else:
            await self._take_back(now)

    async def _follow_monitors(self, now: float) -> None:
        """Ranks have spoken: their monitors judge; the hosts are asked that none of these sees."""
        if self.heard.ends and self.around.on_hang == "end":
            self.at.ranks_ended = self.at.ranks_ended or now
            if now > self.at.ranks_ended + ENDED_RANKS_LIMIT:
                self.stop()  # a shell goes on behind its ranks (`torchrun ... | tee log`)
        if self.heard.is_held_back and self.verdict is None:
            await self.hosts.answer_monitors()
        elif self.heard.outcome == "ok" and self.verdict is None:
            from .watcher_end import look_past_ranks

            await look_past_ranks(self, now)

    def find_pause(self, now: float) -> float:
        """Return the seconds between two samples: the longer it has run, the more seldom."""
        return min(RARELY, max(SAMPLE_EVERY, (now - self.at.began) / 60))

    async def _look_at_clocks(self, now: float) -> None:
        around, at = self.around, self.at
        if around.limit is not None and now > at.began + around.limit:
            await self._judge("limit", at.began + around.limit)
        elif self.readiness.has_answered:
            return
        elif around.expects_words:
            if now > max(at.began, at.looked) + around.start_limit:
                await self._late_at_start(now)
        elif now > max(at.stirred, at.looked) + max(around.stall, self.find_pause(now)):
            await self._judge("still", at.stirred + around.stall)
        elif now > max(at.began, at.looked) + NAMES_AFTER * around.stall and self._is_to_name():
            await self.look()

    def _is_to_name(self) -> bool:
        return self._stillness is not None and self._stillness.wants_names_of_threads()

    def sample(self, now: float) -> None:
        from ..evidence.process import descendants
        from ..evidence.ray_cluster import leave_out_services
        from .ended_children import EndedChildren
        from .job_activity import Stillness

        if self._stillness is None or self._ended is None:
            self._stillness, self._ended = Stillness(), EndedChildren()
        if self.is_held():
            self.at.stirred = now  # by Ctrl-Z or a batch system: nothing of it is to move
            return
        pids = leave_out_services([self.pid, *descendants([self.pid])])
        self._ended.note(pids, now)
        others = set(self._ended.select_others(pids)) - self._ended.find_starters()
        stirred = self._stillness.stirred_at(sorted(others), self._ended.find_pollers())
        self.at.stirred = max(self.at.stirred, stirred)

    def list_ssh_clients(self) -> list[SshClient]:
        """Return each ssh by which the command has started a part of it, so far."""
        return [] if self._ended is None else [*self._ended.ssh_clients.values()]

    def _find_restarted(self) -> RestartedProcess | None:
        return None if self._ended is None else self._ended.find_restarted()

    def is_held(self) -> bool:
        """Return whether the command was stopped, or all of it."""
        from ..base.proc import read_stat

        found = [read_stat(pid) for pid in (self.pid, self._front_pid)]
        return any(one is not None and one.state in "Tt" for one in found)

    async def _late_at_start(self, now: float) -> None:
        """No rank has come to its first line in time: look why, unless it waits in a queue."""
        from ..evidence.external_tools import is_queued
        from ..evidence.process import descendants

        if await is_queued([self.pid, *descendants([self.pid])]):
            self.at.looked = now
            return
        await self._judge("late", self.at.began + self.around.start_limit)

    async def _judge(self, ended: Ended, since: float) -> None:
        """Look from outside, and close if nothing moves."""
        from .clocks import OTHER_NODES_LIMIT, NodeWait

        around, at = self.around, self.at
        self._node_wait = self._node_wait or NodeWait()
        if self.is_held():
            at.skip(time.monotonic(), 0.0)
            return
        outside = await self.look()
        moved = outside.moved()
        if self._is_out_of_our_hands():
            return
        waits_for = outside.describe_node_wait() if outside.spans_nodes else ""
        since_then = self._node_wait.note(waits_for, moved, at.stirred)
        self._tell_node_wait(waits_for)
        if outside.spans_nodes:
            await self._join_agents(outside)
        is_limit = ended == "limit"
        if outside.sees_nothing and not moved and await self.hosts.judge(outside):
            return
        sees_nothing = outside.sees_nothing and not self.hosts.starts_nobody
        if (moved or sees_nothing) and not is_limit:
            return
        # Its agent meets those of other nodes first, and we do not see whether they come.
        is_soon = time.monotonic() - since_then < OTHER_NODES_LIMIT
        waits = ended == "still" and is_soon and outside.spans_nodes and around.starter is None
        if waits and not (self.agents is not None and self.agents.is_to_ask_early):
            return
        if is_limit and outside.rank_of and not moved:
            ended = "late"
        judged, is_sure = await self.judge_here(outside, ended, since)
        if ended == "still" and self.may_go_on(judged):
            return
        told: tuple[LauncherJudgement, str] | None = judged, ""
        if self.agents is not None and self.verdict is None:
            told = await self._hear_agents(judged, ended, is_late=not waits)
        if told is not None:
            is_to_end = around.on_hang == "end" and (is_sure or is_limit)
            await self.close(outside, told[0], is_to_end, told[1])

    def _is_out_of_our_hands(self) -> bool:
        """Return whether monitors judge by now, the command has ended, or it was stopped."""
        return bool(self.heard.ranks) or self.has_ended or self.is_held()

    async def judge_here(
        self, outside: LauncherSnapshot, ended: Ended, since: float, notes: Sequence[str] = ()
    ) -> tuple[LauncherJudgement, bool]:
        """Return how this watch judges by what it sees itself, and whether that ends the job."""
        from ..diagnosis.proof_of_hang import find_proof_of_hang
        from .watcher_verdict import judge_from_outside

        around, at = self.around, self.at
        still, hosts = at.looked - at.stirred, self.hosts
        judged = await judge_from_outside(
            *(outside, ended, around.command, around.table, at.began, still, since),
            *(self._find_restarted(), [*hosts.starts_nobody, *notes], hosts.silent),
        )
        verdict, _, seen, graph = judged
        # A start of a search is made to be ended: only of the user's own job a proof is asked.
        is_tried = around.expects_words or around.starter is not None
        is_proved = bool(find_proof_of_hang(verdict, seen, graph))
        if verdict.outcome == "hang" and not (is_tried or is_proved):
            judged = (replace(verdict, outcome="silent"), *judged[1:])
        return judged, is_tried or is_proved

    def may_go_on(self, judged: LauncherJudgement) -> bool:
        """Return whether what stands still waits for work, or wakes by itself before long: not if
        it sleeps until it starts what has ended by an error again and again.
        """
        from ..collect.looks import wakes_soon
        from ..diagnosis.proof_of_hang import describe_waiting_for_work
        from .clocks import IN_DOUBT

        seen, limit = judged[2], IN_DOUBT * self.around.stall
        if judged[1].restarted is not None and judged[1].restarted.error:
            return False
        return bool(describe_waiting_for_work(seen.ranks)) or any(
            wakes_soon(facts, seen.waits.get(facts.rank), limit) for facts in seen.ranks
        )

    @cached_property
    def readiness(self) -> ServerReadiness:
        from .server_readiness import ServerReadiness

        return ServerReadiness(self)

    @property
    def hosts(self) -> AskedHosts:
        if self._hosts_asked is None:
            from .asked_hosts import AskedHosts

            self._hosts_asked = AskedHosts(self)
        return self._hosts_asked

    # ---- the watches of other nodes --------------------------------------------------------------

    async def _join_agents(self, outside: LauncherSnapshot) -> None:
        """Join the watches around the agents of other nodes, with which ours is to meet."""
        is_alone = self.around.starter is not None or not self.around.joins_nodes
        if self.agents is not None or is_alone or not (place := outside.find_meeting_place()):
            return
        from .other_agents import OtherAgents
        from .watcher_report import print_line

        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            agents = OtherAgents(self.around, place, print_line, self._wake.set)
            await agents.begin()
            self.agents = agents

    async def _leave_agents(self, why: str) -> None:
        agents, self.agents = self.agents, None
        if agents is not None:
            await agents.end(why)

    async def _answer_agents(self, inquiry: int) -> None:
        """Look once more, and tell who leads the watches of all nodes, who has asked."""
        outside = await self.look()
        if self._is_out_of_our_hands():
            return
        judged, _ = await self.judge_here(outside, "still", self.at.stirred)
        told = await self._hear_agents(judged, "still", outside.moved(), inquiry)
        if told is not None:
            is_to_end = self.around.on_hang == "end" and told[0][0].outcome == "hang"
            await self.close(outside, told[0], is_to_end, told[1])

    async def _hear_agents(
        self,
        judged: LauncherJudgement,
        ended: Ended,
        moved: str = "",
        inquiry: int = 0,
        is_late: bool = False,
    ) -> tuple[LauncherJudgement, str] | None:
        """Return the verdict on the launchers of all nodes, and the host that tells it, "" for this
        one; that of this node where nobody is heard. None: there is no verdict yet.
        """
        assert self.agents is not None
        answer = await self.agents.hear(judged, ended, moved, inquiry, is_late)
        if self._is_out_of_our_hands():
            return None
        if answer is None:
            return (judged, "") if is_late and not inquiry else None
        if answer.verdict is None:
            return None
        joint = self.agents.take_joint()
        return (joint, "") if joint is not None else ((answer.verdict, *judged[1:]), answer.lead)

    def _tell_node_wait(self, waits: str) -> None:
        """Say which nodes are at the rendezvous, once for each change of that."""
        from .watcher_report import print_line

        if waits and waits != self._told_node_wait:
            self._told_node_wait = waits
            print_line(f"No rank yet after {time.monotonic() - self.at.began:.0f} s: {waits}")

    async def close(
        self,
        outside: LauncherSnapshot,
        judged: LauncherJudgement,
        is_to_end: bool,
        told_by: str = "",
    ) -> None:
        """Write and print the verdict, or who prints it; then end the job, or leave it."""
        from .watcher_report import print_line, report_from_outside

        self.verdict = judged[0]
        if outside.shut_out:
            print_line(
                f"PYTHONPATH was set anew for {outside.shut_out[-1]}, which tells no steps for "
                "that: keep what is in it, PYTHONPATH=DIR:$PYTHONPATH"
            )
        where = await report_from_outside(
            self.around, self.listening.folder, *judged, is_to_end=is_to_end, told_by=told_by
        )
        self.begin_reports(where)
        if is_to_end:
            self.stop()

    def begin_reports(self, where: str) -> None:
        from .child_processes import Reports

        self.reports = self.reports or Reports()
        self.reports.begin(where)

    async def _take_back(self, now: float) -> None:
        """If what was called hung stirs, look; if it moves, the verdict is void."""
        from .clocks import AFTER_A_VERDICT
        from .watcher_report import print_line

        at = self.at
        if self.hosts.has_judged:
            await self.hosts.take_back()
            return
        if now < at.looked + AFTER_A_VERDICT or at.stirred <= at.looked:
            return
        restarted = self._find_restarted()
        if restarted is not None and restarted.error:
            return  # what comes and goes moves nothing on
        if moved := (await self.look()).moved():
            self.verdict = None
            print_line(f"Taken back: it moves again ({moved}); watching on")

    async def look(self) -> LauncherSnapshot:
        from .clocks import OTHER_NODES_LIMIT
        from .watcher_verdict import look_from_outside

        # A launcher whose ssh has just ended gathers what came back from other hosts, and ends.
        lately = time.monotonic() - self.at.elsewhere < OTHER_NODES_LIMIT
        found = await look_from_outside(
            self.pid,
            self.around.expects_words,
            self.listening.path,
            lately,
            self._ended.select_others if self._ended is not None else list,
            self._ended.list_failed() if self._ended is not None else (),
        )
        if found.has_clients:
            self.at.elsewhere = time.monotonic()
        for pid in found.rank_of:
            self.family.add_rank(pid)
        self.tasks = set(found.rank_of) if found.is_elsewhere else set()
        self.at.looked = time.monotonic()
        if self._stillness is not None:
            self._stillness.learn_threads(found.as_seen)
        return found

    @property
    def family(self) -> ProcessFamily:
        if self._family_found is None:
            from .ending import ProcessFamily

            self._family_found = ProcessFamily(self.listening.path, OUTER_VARIABLE)
            self._family_found.add_rank(self.pid)
        return self._family_found

    # ---- the end ---------------------------------------------------------------------------------

    async def _finish(self) -> None:
        from .watcher_end import CommandEnd

        await CommandEnd(self).finish()

    def _given_status(self) -> int | None:
        """Return the exit status that a verdict gives; None: the command's own."""
        outcome = self.verdict.outcome if self.verdict is not None else self.heard.outcome
        if self.around.expects_words:
            return EXIT_STATUS.get(str(outcome))
        # What fails by itself has a status of its own, also if we end what it left behind.
        ended_by_us = self.heard.ends or (self.verdict is not None and self.is_stopped)
        is_ours = ended_by_us and outcome in CUT_SHORT
        return EXIT_STATUS.get(str(outcome)) if is_ours else None


def run_watcher(
    around: SupervisedCommand, listening: WatcherSocket, front: socket.socket, pid: int
) -> None:
    """Be the watch from outside, to the end of the command `pid`."""
    from ..front.watcher_socket import remove_deserted_sockets
    from .monitor_process import be_killed_first

    async def run() -> None:
        with contextlib.suppress(OSError):
            remove_deserted_sockets(listening)
        await LauncherSupervisor(around, listening, front, pid).run()

    be_killed_first()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # its words are not the command's
    asyncio.run(run(), debug=False)  # PYTHONASYNCIODEBUG is for the command


def _find_parent(pid: int) -> int:
    from ..base.proc import read_stat

    found = read_stat(pid)
    return found.ppid if found is not None else 0
