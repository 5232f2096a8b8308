"""The monitors of a job's other nodes: found, joined, and asked before anything is judged.

The monitor of rank 0's node leads (link/lead.py); each, that one too, is a node of the star
(link/node.py). Once it is lost another one leads (next_lead.py). Who leads judges all nodes as one
by what each of them would write in its run folder (collect/nodes.py). Loaded for jobs on several
nodes alone. Whatever fails here, this node is on its own, as if there were no link.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.rank_facts import Ended, JobFacts, LongestStep, LostNode
from ..base.variables import TOKEN_VARIABLE
from ..base.words import format_ranges
from ..link.channel import Address, Credentials
from ..link.lead import Lead
from ..link.messages import AtBarrier, Join, Judged, NodeWord, TableRow
from ..link.node import NodeLink, open_lead
from ..link.peers import NodeAnswer, Unseen
from ..link.signposts import Signpost
from .lead_address import (
    TOKEN_FILE,
    NeighbourSearch,
    WaitingNodes,
    format_token,
    list_lead_places,
    listen_at,
    make_credentials,
    resolve_places,
)
from .next_lead import LIMIT as NEXT_LEAD_LIMIT
from .next_lead import NextLead
from .node_proof import NodeProof, why_no_node
from .reported_nodes import (
    find_longest_step,
    judge_reported_nodes,
    judge_told_nodes,
    make_digest,
    make_report,
)
from .verdict_output import find_longest_step as find_own_longest_step

if TYPE_CHECKING:
    from ..collect.nodes import JointJudgement
    from ..diagnosis.snapshot import Snapshot
    from .job import Job
    from .judgement import Judgement

JOIN_LIMIT = 10.0  # seconds for the nodes to find each other, before one is on its own
SHARED_JOIN_LIMIT = 20.0  # the same where they may share a run folder, if nobody leads
_MOST_HOSTS = 256  # that are told to who watches the launcher
_GUIDE_EVERY = 3.0  # seconds between two looks whether ranks are missing still
NO_LEAD_AFTER = 30.0  # seconds until it is said that no lead is found
OVER_JOIN_LIMIT = 5.0  # the same once a rank has failed, or all have ended
# Seconds for all nodes to have ended as well; ranks of a walk wait for that (GOODBYE_LIMIT).
END_LIMIT = 2.0
# All nodes are to look then; after a crash as well: others lose their peer by it, and may fail.
ASKING: tuple[Ended, ...] = ("still", "late", "busy", "left", "limit", "crash")
_RUN_IDS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "MASTER_PORT")


class OtherNodes:
    """The link of one job's monitor to those of the other nodes."""

    def __init__(self, job: Job) -> None:
        """Nothing is said before begin()."""
        self._job = job
        self._lead: Lead | None = None  # where rank 0 is here
        self._search: NeighbourSearch | None = None
        self._next: NextLead | None = None
        self._joint: JointJudgement | None = None  # made by us, who lead
        self.is_joint_proved = True  # that it is of nodes of this job
        self.longest_step: LongestStep | None = None  # on any node, where we told how all ended
        self._proof = NodeProof(self._shared_folder(), self)
        self._tasks: list[asyncio.Task[None]] = []
        self._said_none = self._said_untold = False
        self._why_untold = TOKEN_VARIABLE  # why others do not have the token that is left for them
        self._cannot_listen = ""  # why not, where rank 0 is here
        self.ranks = self._list_ranks()
        host = str(job.place["host"])
        # Programs that start their ranks themselves have not numbered the nodes.
        self._node = str(job.place["node_name"]) or ("0" if job.place["launcher"] else host)
        self._began = time.monotonic()
        self.link: NodeLink | None = None
        self.on_barriers: Callable[[], None] = lambda: None  # whenever ranks may be let go
        self.master_addresses: tuple[str, ...] = ()  # of rank 0's node, once they are looked up
        self._has_begun = asyncio.Event()
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of each closed socket

    # ---- joining ---------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Lead, if rank 0 is here, and join. Never waits for another node."""
        job = self._job
        self.ranks = self._list_ranks()
        if 0 in self.ranks:  # it may be late
            await self._lead_nodes()
        host, members = str(job.place["host"]), job.members
        join = Join(self._node, host, secrets.token_hex(8), self.ranks, members.world_size)
        self.link = NodeLink(
            join, self._find, lambda: make_digest(job, self.ranks), job.changed.set
        )
        self.link.on_barriers = self._move_barriers
        self.link.list_rows = self._give_rows
        if job.lockstep and not job.runs_script:
            self.link.pass_barrier(AtBarrier(max(members.opened, default=0)))
        folder = self._shared_folder()
        own = NodeWord(self._node, host, self.ranks, "", 0)
        waiting = WaitingNodes(folder, own) if folder is not None else None
        self._next = NextLead(self.link, self, waiting, job.say)
        self._tasks.append(asyncio.create_task(self.link.run()))
        self._tasks.append(asyncio.create_task(self._guide(self.link)))
        self._has_begun.set()

    def _list_ranks(self) -> tuple[int, ...]:
        """Return this node's ranks: who has only started them, without a launcher, is none."""
        members = self._job.members
        launched = self._job.place["launcher"] is not None
        return tuple(sorted(members.expected if launched else members.numbered))

    async def _guide(self, link: NodeLink) -> None:
        """As long as ranks of the job are missing that this node's lead does not know, tell those
        that look for it here where it is: MASTER_ADDR may mean this machine on theirs.
        """
        post: Signpost | None = None
        try:
            while True:
                if self._search is not None and self._lead is not None and self._lead.are_all_there:
                    self._search.end()
                await self._prove_later(link)
                ends = link.ends
                here = ends[0][0] if ends is not None else ""
                leads = ends is None or here == ends[1][0]
                is_wanted = not (leads or link.knows_all_ranks)
                if is_wanted and post is None and (credentials := self._credentials()).can_prove:
                    post = Signpost(credentials, lambda: link.ends[1] if link.ends else None)
                    await listen_at(post, [(here, port) for port in self.list_ports()])
                elif post is not None and not is_wanted:
                    post.close()
                    post = None
                await asyncio.sleep(_GUIDE_EVERY)
        finally:
            if post is not None:
                post.close()

    async def _prove_later(self, link: NodeLink) -> None:
        """Have the lead to which this node has proved nothing found anew, once there is a token
        that it takes: one may come late to a shared folder.
        """
        if not link.is_connected or link.is_led or not self._proof.may_be_found:
            return
        if token := await self._proof.find_later(self._credentials().job):
            credentials = replace(self._credentials(), token=token)
            found, _ = await open_lead(await self.list_addresses(), credentials, follows=False)
            if found is not None:
                found.close()
                link.look_again()

    async def end(self, why: str) -> None:
        """Say why we watch no longer, and let go of all connections."""
        if self.link is not None:
            with contextlib.suppress(Exception):
                await self.link.leave(why)
        for task in self._tasks:
            task.cancel()
        if self._lead is not None:
            self._lead.close()
        if self._next is not None:
            await self._next.end()
        if self._search is not None:
            self._search.end()

    def _credentials(self) -> Credentials:
        environ, place = self._environment(), self._job.place
        run_ids = [environ.get(name) or os.environ.get(name, "") for name in _RUN_IDS]
        return make_credentials(self._proof.token, run_ids, place["world_size"], place["attempt"])

    def _environment(self) -> dict[str, str]:
        first = next(iter(self._job.members), None)
        return {} if first is None else first.environment

    async def _lead_nodes(self) -> None:
        """Listen, where other nodes reach this one, and nowhere else."""
        given = os.environ.get(TOKEN_VARIABLE, "")
        token = given or secrets.token_hex(16)
        self._proof.token = token.encode()
        credentials = self._credentials()
        lead = self.make_lead(credentials)
        if not given:
            await self._leave_token(token, credentials.job)
        if not (given or credentials.by_munge):
            lead.hear_unproved(self._why_no_node)
        addresses = await self.list_addresses()
        if why_not := await listen_at(lead, addresses, self.list_places()):
            self._cannot_listen = why_not  # one that leads elsewhere may be found
        else:
            self._lead = lead
        if self._lead is not None:
            self._search = NeighbourSearch(credentials.job)
            await self._search.be_found(lambda _: self._name_lead(lead))

    async def _leave_token(self, token: str, name: str) -> None:
        """Write the token of the job with this name where nodes find it that share the run folder,
        or are on this machine.
        """
        files = self._job.files
        files.write_secret(TOKEN_FILE, format_token(token, name))
        if self._job.settings["run_dir"] and not await files.publish():
            self._why_untold = f"{TOKEN_FILE} could not be written ({files.trouble})"

    def _why_no_node(self, join: Join) -> str:
        """Return why who proves nothing is no node of this job; "" if it may be one, which is said
        of the first.
        """
        why_not = why_no_node(join, self._job.members.world_size, self.ranks)
        if not (why_not or self._said_untold):
            self._said_untold = True
            self._job.say(
                f"No token joins the nodes ({self._why_untold}): each judges for itself, and what "
                "others tell is shown here"
            )
        return why_not

    def _name_lead(self, lead: Lead) -> tuple[str, Address] | None:
        """Return this node and where it leads, None once the nodes of all ranks have come."""
        places = [] if lead.are_all_there else lead.places
        return (str(self._job.place["host"]), places[0]) if places else None

    def make_lead(self, credentials: Credentials) -> Lead:
        """Return a lead that hears nobody yet."""
        job = self._job
        lead = Lead(credentials, str(job.place["host"]), self._judge, job.say)
        lead.on_opened = self._say_who_came
        return lead

    def list_ports(self) -> list[int]:
        """Return the ports at which a lead may listen."""
        return [*dict.fromkeys(port for _, port in self.list_places())]

    def list_places(self) -> list[Address]:
        environ = self._environment()
        return list_lead_places(environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", ""))

    async def list_addresses(self) -> list[Address]:
        """Return where the first lead may be."""
        master, places = self._environment().get("MASTER_ADDR", ""), self.list_places()
        found = await resolve_places(places)
        if master in found:
            self.master_addresses = tuple(dict.fromkeys(address for address, _ in found[master]))
        return [one for addresses in found.values() for one in addresses]

    async def _find(self) -> tuple[Sequence[Address], Credentials]:
        """Return where to look for the lead, whoever that is by now, and what to prove."""
        if self._next is None or self._lead is not None:
            return await self.find_first()
        return await self._next.find()

    async def find_first(self) -> tuple[Sequence[Address], Credentials]:
        """Return where to look for the first lead, and what to prove, if anything."""
        addresses = await self.list_addresses()  # before: a token may come meanwhile
        if self._lead is None:
            was_refused = self.link is not None and bool(self.link.refused)
            await self._proof.choose(self._credentials().job, was_refused)
        self._say_if_alone()
        credentials = self._credentials()
        asked = await self._ask_neighbours(credentials) if credentials.can_prove else []
        return [*addresses, *asked], credentials

    async def _ask_neighbours(self, credentials: Credentials) -> list[Address]:
        """Return where those listen who say that they lead, where nobody does so at the address
        that this node was given: it may be wrong here, or lead nowhere.
        """
        if self._lead is not None or self.link is None or self.link.was_led:
            return []
        self._search = self._search or NeighbourSearch(credentials.job)
        return [place for one in await self._search.ask() for place in one.places]

    def _shared_folder(self) -> Path | None:
        """Return the run folder that other nodes may share, None where none was asked for."""
        settings = self._job.settings
        if not settings["run_dir"]:
            return None
        return Path(str(settings["folder_of_start"])) / str(settings["run_dir"])

    def _say_if_alone(self) -> None:
        link = self.link
        if link is None or link.was_led or link.is_connected or self._said_none or self._lead:
            return
        leads = 0 in self.ranks and not self._cannot_listen
        if leads or time.monotonic() < self._began + NO_LEAD_AFTER:
            return
        self._said_none = True
        if self._cannot_listen:
            why = f"this one cannot listen for the others ({self._cannot_listen})"
            self._job.say(f"Each node judges for itself: {why}")
            return
        can_prove = self._credentials().can_prove
        why = link.refused or ("nothing answers" if can_prove else f"no {TOKEN_VARIABLE}")
        self._job.say(f"No monitor of rank 0's node is found ({why}): this node judges for itself")

    # ---- the table of ranks ----------------------------------------------------------------------

    @property
    def table_host(self) -> str:
        """Return the host that shows the ranks of all nodes, "" where that is none or this one."""
        return self.leading_host if self.is_led and self.link and self.link.lead_has_table else ""

    def list_rows(self) -> list[tuple[str, float, tuple[TableRow, ...]]]:
        """Return what other nodes tell for our table; have them told that there is one."""
        lead = self._lead or (self._next.lead if self._next is not None else None)
        if lead is None:
            return []
        lead.has_table = True
        return lead.list_rows()

    def _give_rows(self) -> tuple[TableRow, ...]:
        from .live_rows import give_rows, locate_ranks  # where there is a table at all

        if not self.leading_host:
            return ()  # we show it
        return give_rows(locate_ranks(self._job, now := time.monotonic()), now)

    # ---- barriers --------------------------------------------------------------------------------

    @property
    def spans_barriers(self) -> bool:
        """Return whether ranks are held for those of other nodes."""
        return self.link is not None and self.link.spans_barriers

    @property
    def hosts_behind(self) -> tuple[str, ...]:
        """Return some of the hosts for which ranks, here or elsewhere, are held in a barrier."""
        return self.link.behind if self.link is not None and self.spans_barriers else ()

    def pass_barrier(self, number: int) -> bool:
        """Tell that all ranks here have reached a checkpoint. Return whether they may go on."""
        times = [m.arrivals[number] for m in self._job.members if number in m.arrivals]
        at = AtBarrier(number, min(times, default=0.0), max(times, default=0.0))
        return self.link is None or self.link.pass_barrier(at)

    def stop_holding(self) -> None:
        """Tell that no rank is held here any more: none is held for another node then."""
        if self.link is not None:
            self.link.pass_barrier(AtBarrier(-1))

    def tell_done(self, what: str) -> None:
        """Tell that rank 0, which is here, is through with what others wait for."""
        if self.link is not None:
            self.link.tell_done(what)

    def has_done(self, what: str) -> bool | None:
        """Return whether rank 0, on another node, is through with it; None if that is not heard."""
        link = self.link
        if link is None or not link.is_led or not any(0 in one.ranks for one in link.list_others()):
            return None
        return what in link.done

    def _move_barriers(self) -> None:
        with self._job.failures.of("let ranks go that wait for other nodes"):
            self.on_barriers()

    def _say_who_came(self, arrived: Sequence[tuple[Join, AtBarrier]]) -> None:
        """Print one line for a checkpoint that the ranks of these nodes have reached, where ranks
        print none of their own.
        """
        if not self._job.settings["sum_up"]:
            return
        ranks = format_ranges(sorted(rank for join, _ in arrived for rank in join.ranks))
        times = [at for _, at in arrived]
        self._job.sum_up(
            times[0].number,
            f"{ranks} on {len(arrived)} hosts",
            min(at.first for at in times),
            max(at.last for at in times),
        )

    # ---- as a node -------------------------------------------------------------------------------

    @property
    def is_led(self) -> bool:
        """Return whether the verdict comes from the lead, and not from this node."""
        return self.link is not None and self.link.is_led

    @property
    def question(self) -> int:
        """Return the inquiry of the lead's that is to be answered, 0 for none."""
        return self.link.question if self.link is not None else 0

    def list_lost(self) -> tuple[LostNode, ...]:
        """Return the nodes that were heard of, and of which nothing is known now that the lead is
        not heard any more; () while it is, or never was.
        """
        link = self.link
        if link is None or not link.was_led or link.is_connected:
            return ()
        now = time.monotonic()
        return tuple(
            LostNode(word.host, word.ranks, round(now - heard, 1), word.last_word, word.address)
            for name, (heard, word) in sorted(link.others.items())
            if name != self._node
        )

    def list_hosts(self) -> dict[str, str]:
        """Return by name the addresses by which hosts of other nodes have reached the lead."""
        others = self.link.list_others() if self.link is not None else []
        own = str(self._job.place["host"])
        found = {one.host: one.address for one in others if one.host != own and one.address}
        return dict(sorted(found.items())[:_MOST_HOSTS])

    async def find_next_lead(self, ended: Ended) -> None:
        """Wait until somebody leads again, where the lead is not heard any more and a verdict on
        all nodes is wanted; within a limit.
        """
        link = self.link
        if link is None or self._next is None or ended not in ASKING:
            return
        if not (link.was_led or self._next.waits_with_others):
            return
        since = link.heard if link.was_led else self._began
        await link.wait_until_led(since + NEXT_LEAD_LIMIT - time.monotonic())
        await self._next.wait_for_others()

    def note_lost(
        self, facts: JobFacts, seen: Snapshot, lost: tuple[LostNode, ...]
    ) -> tuple[JobFacts, Snapshot]:
        """Return the job and what was seen of it, with the nodes that are lost."""
        from ..collect.node_connections import mark_lost_ends
        from ..collect.nodes import describe_lost

        notes = (*facts.notes, *describe_lost(lost))
        facts = replace(facts, lost_nodes=lost, notes=notes)
        return facts, seen.update(mark_lost_ends(seen.ranks, lost))

    async def hear(self, here: Judgement, ended: Ended, inquiry: int) -> Judged | None:
        """Return what the lead says of all nodes, once it has heard this one. None: it is not
        heard, and this node is on its own; or the job has come to an end here, which is told and
        needs nobody's verdict.
        """
        asks = ended in ASKING
        if asks or (not inquiry and (ended == "done" or self._has_script_ended())):
            await self._wait_for_nodes(ended)
        link = self.link
        if link is None or not (link.is_led or (link.is_connected and not inquiry)):
            return None
        if not link.is_led or (self._hears_unproved_alone and not inquiry):
            judged = await self._hear_unproved(link, here, ended)
            if judged is not None or not link.is_led or ended == "done":
                return judged
        tell = partial(self._report, link, here, ended, inquiry, asks=asks and not inquiry)
        is_heard = link.answer(inquiry, tell)
        if is_heard and ended == "done":  # who failed or hangs elsewhere is none of ours
            judged = await link.wait_for_judgement(END_LIMIT)
            verdict = judged.verdict if judged is not None else None
            if verdict is not None and verdict.outcome == "ok":
                return judged
            if self._lead is not None:  # each of the others tells of its own ranks from now on
                self._lead.close("its ranks have ended")
            return None
        return await link.wait_for_judgement() if is_heard and (asks or inquiry) else None

    @property
    def leading_host(self) -> str:
        """Return the host that gives the verdict on all nodes, "" where that is this one."""
        if self.link is None or self._lead is not None or (self._next and self._next.lead):
            return ""
        return self.link.lead_host or "another node"

    def _has_script_ended(self) -> bool:
        """Return whether all processes are gone here: none of ours, which would wait for us."""
        return self._job.runs_script and all(member.left for member in self._job.members)

    async def _wait_for_nodes(self, ended: Ended) -> None:
        """Wait until this node is led, within a limit; a shorter one where the job may be over, for
        the others are to know how it ended. Where a rank has failed, perhaps before we had begun,
        who leads waits for all nodes: the first failure may be of one that comes.
        """
        is_over = ended in ("crash", "done")
        shares = not is_over and self._lead is None and self._shared_folder() is not None
        until = self._began + (OVER_JOIN_LIMIT if is_over else JOIN_LIMIT)
        until += SHARED_JOIN_LIMIT - JOIN_LIMIT if shares else 0.0
        if ended == "done" and not self._job.runs_script:  # its ranks wait for us
            until = min(until, time.monotonic() + END_LIMIT / 2)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_begun.wait(), until - time.monotonic())
        can_prove = self._credentials().can_prove or TOKEN_VARIABLE in os.environ
        if self.link is None or not (can_prove or shares):
            return
        await self.link.wait_until_led(until - time.monotonic())
        lead = self._lead if ended == "crash" else None
        while lead is not None and not lead.are_all_there and time.monotonic() < until:
            await asyncio.sleep(0.1)

    def _report(
        self, link: NodeLink, here: Judgement, ended: Ended, inquiry: int, asks: bool
    ) -> None:
        host = str(self._job.place["host"])
        report, ranks = make_report(here, host, self.ranks, inquiry, asks)
        longest = find_own_longest_step(self._job) if ended == "done" else None
        link.report(replace(report, ended=ended, longest=longest), ranks)

    @property
    def _hears_unproved_alone(self) -> bool:
        """Return whether other nodes are heard here, and none of them can prove that it is one."""
        lead, unproved = self._lead, self._lead.unproved if self._lead is not None else None
        if lead is None or unproved is None:
            return False
        return unproved.count_heard() > 0 and lead.count_heard() <= 1

    async def _hear_unproved(self, link: NodeLink, here: Judgement, ended: Ended) -> Judged | None:
        """Tell who leads what this node knows; where it leads itself, return the verdict on all
        that have told so. Nothing proves who they are: nobody obeys, and each judges for itself.
        """
        with contextlib.suppress(ConnectionError, ValueError):
            self._report(link, here, ended, 0, asks=False)
        leads = [one for one in (self._lead, self._lead and self._lead.unproved) if one is not None]
        if not leads or ended not in ASKING:
            return None
        told = await judge_told_nodes(self._node, leads, self.list_ports())
        judged, self._joint = told or (None, None)
        self.is_joint_proved = False
        return judged

    def take_joint(self) -> JointJudgement | None:
        """Return what our verdict on all nodes rests on, None where we do not lead."""
        joint, self._joint = self._joint, None
        return joint

    # ---- as the lead -----------------------------------------------------------------------------

    async def _judge(
        self, answers: Sequence[NodeAnswer], unseen: Sequence[Unseen], asker: NodeAnswer
    ) -> Judged:
        judged, joint = await judge_reported_nodes(
            self._node, answers, unseen, asker, self.list_ports()
        )
        self._joint, self.is_joint_proved = joint or self._joint, True
        self.longest_step = find_longest_step(answers)
        return judged
