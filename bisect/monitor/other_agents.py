"""The watches around the launchers of a job's nodes, before there is a rank: torchrun's agents wait
for one another, and who watches one of them sees that some have not come, perhaps not which.

They join as the monitors of ranks do later (other_nodes.py): who watches on the machine at which
the agents meet leads, or another one where nobody does (next_lead.py), and gives one verdict for
all. Where each is to meet the others on its own machine (localhost) they find one another on their
networks, and the first by name leads. Loaded once an agent that has to meet others stands still.
Whatever fails here, each watch tells what it sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..base.addresses import host_of, is_loopback, port_of
from ..base.command_words import count_nodes, given, own_words
from ..base.deadline import call_with_limit
from ..base.identity import UnknownRank
from ..base.node_record import NodeClock, make_node_record
from ..base.rank_facts import Ended
from ..base.variables import TOKEN_VARIABLE
from ..diagnosis.other_nodes import cannot_meet, compare_agents, meets_elsewhere
from ..diagnosis.snapshot import Snapshot
from ..diagnosis.verdict import judge_snapshot
from ..link.channel import Address, Credentials, has_munge
from ..link.lead import Lead
from ..link.messages import Digest, Join, Judged, NodeWord, Report
from ..link.node import NodeLink, open_lead
from ..link.peers import NodeAnswer, Unseen
from .copy_run import write
from .lead_address import (
    FILE_LIMIT,
    TOKEN_FILE,
    NeighbourSearch,
    WaitingNodes,
    are_on_one_machine,
    find_own_address,
    format_token,
    list_common_ports,
    list_lead_places,
    listen_at,
    make_credentials,
    read_shared_token,
    resolve_places,
)
from .monitor_process import call_in_thread
from .next_lead import NextLead
from .reported_nodes import add_nodes, describe_as_lost
from .watcher_verdict import LauncherJudgement, blame_launcher

if TYPE_CHECKING:
    from ..base.process_facts import Look
    from .watcher_link import SupervisedCommand

JOIN_LIMIT = 10.0  # seconds for the watches to find each other, before one is on its own
_COMMON_AFTER = 3.0  # seconds without a lead behind the port at which the agents meet
_PREFER_EVERY = 2.0
_RUN_IDS = ("SLURM_JOB_ID", "SLURM_STEP_ID")


class OtherAgents:
    """The link of one watch to those of the other nodes."""

    def __init__(
        self,
        around: SupervisedCommand,
        place: str,
        say: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        """`place` is where the agents meet, as host:port; `wake` is called when the lead asks for
        something.
        """
        self._around, self._say = around, say
        self._host, self._port = host_of(place), port_of(place)
        self._lead: Lead | None = None
        self._token = os.environ.get(TOKEN_VARIABLE, "").encode()
        self._joint: LauncherJudgement | None = None  # made by us, who lead
        self._began = time.monotonic()
        host = socket.gethostname()
        join = Join(f"{host} {os.getpid()}", host, secrets.token_hex(8), (), 0)
        self._link = NodeLink(join, self._find, lambda: Digest(()), wake)
        waiting = WaitingNodes(around.run_dir, NodeWord(join.node, host, (), "", 0))
        self._next = NextLead(self._link, self, waiting, say)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_by_munge = False  # the last try to find the lead
        self._tries = 0
        self._is_by_common = False  # the last try, by the name without the port
        self._common = self._name_without_port()
        self._search = NeighbourSearch(self._common)
        self._found: Sequence[Address] = ()  # where a lead was found on our networks
        self._opening: dict[str, asyncio.Task[str]] = {}  # addresses at which others are heard
        self._compared = 0  # nodes that were there when all were asked last

    @property
    def question(self) -> int:
        """Return the inquiry of the lead's that is to be answered, 0 for none."""
        return self._link.question

    async def begin(self) -> None:
        """Lead, if the agents meet on this machine, and join. Never waits for another node."""
        token = self._token or secrets.token_hex(16).encode()
        lead = self.make_lead(replace(self._credentials(token), also=self._common))
        places = list_lead_places(self._host, self._port)
        addresses = await self.list_addresses()
        if not await listen_at(lead, addresses, places):
            self._lead = lead
            await listen_at(lead, self._list_common(addresses), places)  # not to be missed
            if not self._token:
                await self._leave_token(token)
            self._token = token
        self._tasks = [asyncio.create_task(self._link.run())]
        self._tasks.append(asyncio.create_task(self._prefer_own_lead()))
        if self._lead is not None:
            await self._search.be_found(self._name_lead)
            if are_on_one_machine(places):
                self._tasks.append(asyncio.create_task(self._look_around()))

    def _name_lead(self, asker: str) -> tuple[str, Address] | None:
        """Return this watch and where its lead listens for who asks; None where nobody leads here,
        nobody is missing, or it does not listen yet where that one would reach it.
        """
        lead, nodes = self._lead, count_nodes(self._around.command)
        if lead is None or 0 < nodes <= len(self._link.others):
            return None
        there = [place for place in lead.places if not is_loopback(place[0])]
        own = find_own_address([(asker, 1)])
        if not there and own and not is_loopback(own) and own not in self._opening:
            places = self._list_common([(own, 0)])
            self._opening[own] = asyncio.create_task(listen_at(lead, places))
        return (self._link.node, there[0]) if there else None

    async def _look_around(self) -> None:
        """As long as nodes are missing, where all are to meet on this machine: look for one that
        leads elsewhere, and follow the first of all by name.
        """
        while self._lead is not None:
            await asyncio.sleep(_PREFER_EVERY)
            nodes = count_nodes(self._around.command)
            if 0 < nodes <= len(self._link.others):
                continue
            found = [one for one in await self._search.ask() if one.name < self._link.node]
            if found and self._lead is not None:
                self._found = min(found).places
                self._lead.abandon()
                self._lead, self._is_by_common = None, True
                self._link.look_again()

    async def _prefer_own_lead(self) -> None:
        """Leave a lead that was found at a port which all jobs of this user may share, once there
        is one behind the port at which our agents meet: the first is that of another job.
        """
        while True:
            await asyncio.sleep(_PREFER_EVERY)
            if not (self._is_by_common and self._link.is_connected):
                continue
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                credentials = self._credentials(await self._read_token())
                addresses = await self.list_addresses()
                found, _ = await open_lead(addresses, credentials, follows=False)
                if found is not None:
                    found.close()
                    self._is_by_common = False
                    self._began = time.monotonic()  # it is looked for there first
                    self._link.look_again()

    async def end(self, why: str) -> None:
        """Say why we are not there any longer, and let go of all connections."""
        with contextlib.suppress(Exception):
            await self._link.leave(why)
        for task in self._tasks:
            task.cancel()
        if self._lead is not None:
            self._lead.close()
        await self._next.end()
        self._search.end()
        for opening in self._opening.values():
            opening.cancel()

    def list_ports(self) -> list[int]:
        """Return the ports at which a lead may listen."""
        return [*dict.fromkeys(port for _, port in list_lead_places(self._host, self._port))]

    def make_lead(self, credentials: Credentials) -> Lead:
        """Return a lead that hears nobody yet."""
        return Lead(credentials, socket.gethostname(), self._judge, self._say)

    async def _leave_token(self, token: bytes) -> None:
        """Write the token into the run folder, for watches of nodes that share it."""
        text = format_token(token.decode())
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            folder = str(self._around.run_dir)
            await call_with_limit(write, {TOKEN_FILE: text}, folder, limit=FILE_LIMIT)

    def _credentials(self, token: bytes) -> Credentials:
        return make_credentials(token, "agents", self._port)

    async def list_addresses(self) -> list[Address]:
        """Return where the first lead may be."""
        found = await resolve_places(list_lead_places(self._host, self._port))
        return [one for addresses in found.values() for one in addresses]

    async def _find(self) -> tuple[Sequence[Address], Credentials]:
        """Return where to look for the lead, whoever that is by now, and what to prove."""
        return await (self.find_first() if self._lead is not None else self._next.find())

    async def find_first(self) -> tuple[Sequence[Address], Credentials]:
        """Return where to look for the first lead, and what to prove: nowhere without a token."""
        self._is_by_munge = has_munge() and not self._is_by_munge  # each second try
        token = b"" if self._is_by_munge and not self._token else await self._read_token()
        credentials, addresses = self._credentials(token), await self.list_addresses()
        self._tries += 1
        is_late = time.monotonic() > self._began + _COMMON_AFTER
        # By munge and without it; whom we have lost we look for where it was.
        self._is_by_common = (
            is_late
            and self._lead is None
            and (self._tries % 4 > 1 if not self._link.was_led else self._is_by_common)
        )
        if self._is_by_common:
            credentials = replace(credentials, job=self._common)
            if not (self._found or self._link.was_led):
                asked = [place for one in await self._search.ask() for place in one.places]
                addresses = [*self._list_common(addresses), *asked]
            else:
                addresses = [*self._list_common(addresses), *self._found]
        return addresses if credentials.can_prove else (), credentials

    async def _read_token(self) -> bytes:
        """Return our token, or that of the run folder: it is read anew, for it may be of a run
        before this one.
        """
        token = self._token
        if not token:
            token = (await read_shared_token(self._around.run_dir)).encode()
        return token

    def _name_without_port(self) -> str:
        """Return the name of the job by what its agents have in common besides the port at which
        they meet: one of them may have another port.
        """
        command, at = self._around.command, own_words(self._around.command)
        flags = [given(command[:at], flag) for flag in ("--rdzv-id", "--nnodes")]
        program = [os.path.basename(command[at - 1]) if at else "", *command[at:]]
        run_ids = [os.environ.get(name, "") for name in _RUN_IDS]
        return make_credentials(b"", "agents at any port", flags, program, run_ids).job

    def _list_common(self, addresses: Sequence[Address]) -> list[Address]:
        hosts = dict.fromkeys(host for host, _ in addresses)
        return [(host, port) for host in hosts for port in list_common_ports(self._common)]

    # ---- as a node -------------------------------------------------------------------------------

    @property
    def is_to_ask_early(self) -> bool:
        """Return whether a node has come since all were compared: it may be one that cannot meet
        the others.
        """
        return len(self._link.others) > max(1, self._compared)

    async def hear(
        self, here: LauncherJudgement, ended: Ended, moved: str, inquiry: int, is_late: bool
    ) -> Judged | None:
        """Return what the lead says of all nodes, once it has heard this one and what `moved` here;
        None: it is not heard, and this node is on its own. `is_late`: a node that has not come yet
        would be here by now.
        """
        link = self._link
        await link.wait_until_led(self._began + JOIN_LIMIT - time.monotonic())
        if not link.is_led:
            return None
        self._compared = len(link.others)
        tell = partial(self._report, here, ended, moved, inquiry, is_late)
        is_heard = link.answer(inquiry, tell)
        return await link.wait_for_judgement() if is_heard else None

    def _report(
        self, here: LauncherJudgement, ended: Ended, moved: str, inquiry: int, is_late: bool
    ) -> None:
        verdict, facts, seen, _ = here
        host = socket.gethostname()
        # The launcher is in the place of rank 0 here, and so it is on each node.
        ranks = [replace(r, rank=UnknownRank(host, r.pid), moved=moved) for r in seen.ranks]
        clock = NodeClock(time.monotonic(), time.time())
        record = make_node_record(host, replace(facts, local_ranks=()), ranks, clock)
        report = Report(
            *(inquiry, record, verdict, ended),
            looks=0,
            is_over=is_late,
            asks=not inquiry,
        )
        self._link.report(report, ranks)

    def take_joint(self) -> LauncherJudgement | None:
        """Return our verdict on all nodes, and what it rests on; None where we do not lead."""
        joint, self._joint = self._joint, None
        return joint

    # ---- as the lead -----------------------------------------------------------------------------

    async def _judge(
        self, answers: Sequence[NodeAnswer], unseen: Sequence[Unseen], asker: NodeAnswer
    ) -> Judged:
        """Return the verdict on all nodes, or which of them is at work."""
        answers = sorted((a for a in answers if a.facts), key=lambda a: a.join.host)
        own = next((a.facts[0].looks for a in answers if a.join.node == self._link.node), ())
        answers = [one for one in answers if not meets_elsewhere(one.facts[0].looks, own)]
        at_work = next((one for one in answers if one.facts[0].moved), None)
        if at_work is not None:
            return Judged(0, goes_on=f"{at_work.join.host} is at work ({at_work.facts[0].moved})")
        agents = _list_looks(answers)
        if not asker.report.is_over and not await call_in_thread(cannot_meet, agents):
            return Judged(0, goes_on="a node may still come")
        self._joint = await call_in_thread(_judge_agents, answers, unseen)
        return Judged(0, self._joint[0])


def _list_looks(answers: Sequence[NodeAnswer]) -> dict[str, Sequence[Look]]:
    """Return by host the looks at its launcher, where there are any."""
    return {one.join.host: one.facts[0].looks for one in answers if one.facts[0].looks}


def _judge_agents(answers: Sequence[NodeAnswer], unseen: Sequence[Unseen]) -> LauncherJudgement:
    """Return the verdict on the launchers of all nodes: that on the one which tells most."""
    agents = _list_looks(answers)
    kept, disagreements = compare_agents(agents) if agents else (answers[0].join.host, [])
    chosen = next(one for one in answers if one.join.host == kept)
    facts, own = chosen.report.record.job, chosen.report.verdict
    notes = (*facts.notes, *disagreements)
    facts = replace(facts, notes=notes, lost_nodes=tuple(map(describe_as_lost, unseen)))
    seen = Snapshot([replace(one, rank=0) for one in chosen.facts])
    verdict, graph = judge_snapshot(facts, seen)
    verdict = replace(blame_launcher(verdict), outcome=own.outcome, seconds=own.seconds)
    verdict = replace(add_nodes(verdict, answers, unseen), partial=True)
    return verdict, facts, seen, graph
