"""A job seen from outside its ranks: below a launcher of which no rank has spoken to a monitor.

Either it walks no pipeline of ours (a script of the user's), or it hangs before any rank has come
to its first line: then that is checkpoint 0, "Ranks started".

The tasks that an srun started on this node are below slurmstepd, not below srun, and may have
none of its variables (srun --export=NONE).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from ..base.checkpoints import Checkpoint
from ..base.client_program import SshClient, read_ssh_client
from ..base.command_words import (
    find_meeting_place,
    is_resource_tracker,
    is_shell,
    number_programs,
    pipeline_of,
    several_nodes,
    starts_for_multiprocessing,
)
from ..base.deadline import within
from ..base.environment import relevant
from ..base.launcher_env import number
from ..base.launchers import CLIENTS, DIALECTS, find_typed_launcher
from ..base.lazy_dataclass import dataclass
from ..base.proc import read_stat
from ..base.process_facts import Look
from ..base.rank_facts import NOTHING_MOVES, Ended, JobFacts, RankFacts, RestartedProcess
from ..base.rank_history import SILENT
from ..base.variables import PACKAGE_VARIABLE
from ..base.verdict_facts import Ranks, Verdict
from ..base.version import VERSION
from ..base.words import format_rate
from ..collect.beside import ProcessesBeside
from ..collect.looks import PAUSE, take_good_looks
from ..diagnosis.other_nodes import (
    NodeRendezvous,
    find_node_rendezvous,
    list_agents_lost_at_end,
)
from ..diagnosis.process.actor_waits import put_job_thread_first, put_same_thread_first
from ..diagnosis.process.blocked_syscalls import CHILD_WAIT_CALLS
from ..diagnosis.process.process_snapshot import main_kernel, merge_looks
from ..diagnosis.process.request_threads import put_stuck_request_first
from ..diagnosis.proof_of_hang import waits_for_requests
from ..diagnosis.snapshot import Snapshot
from ..diagnosis.verdict import judge_snapshot
from ..diagnosis.verdict_skeleton import make_verdict_skeleton
from ..diagnosis.wait_graph import WaitGraph
from ..evidence import movement
from ..evidence.awaited_work import keep_children_that_feed
from ..evidence.dask_threads import is_loop_at_work
from ..evidence.descriptors import parse_socket_inode, read_sockets
from ..evidence.look import Target
from ..evidence.machine import read_machine
from ..evidence.process import (
    family,
    has_loaded_library,
    marked,
    runs_python,
    variables_of,
    words_of,
)
from ..evidence.ray_cluster import leave_out_services
from ..evidence.successive_looks import complete_look
from ..rank.watched.command_environment import START_UP
from ..rank.watched.unreached_ranks import find_hosts_flag
from .started_ranks import find_rank_number, take_spawned_ranks
from .watcher_link import OUTER_VARIABLE

# In each task: the port on which its srun listens (slurm's src/srun/libsrun/launch.c).
_PORT = "SLURM_SRUN_COMM_PORT"
_ENVIRONMENT_LIMIT = 0.2  # seconds: a process in the kernel may block who reads it


def find_srun_tasks(sruns: Iterable[int]) -> set[int]:
    """Return the tasks on this node, and what they started, of the processes `sruns`."""
    inodes = {inode for pid in sruns for inode in _socket_inodes(pid)}
    if not inodes:
        return set()
    listening = [
        s for inode, s in read_sockets().items() if inode in inodes and s.state == "LISTEN"
    ]
    ports = {one.local.rpartition(":")[2] for one in listening}
    return {pid for port in ports for pid in marked(_PORT, port)}


def _socket_inodes(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inode = parse_socket_inode(os.readlink(f"/proc/{pid}/fd/{name}"))
                if inode is not None:
                    yield inode


FIND_LIMIT = 1.0  # seconds
# Programs below which nothing of the job runs: they ask others to start it, or wait in a queue.
_CLIENTS = frozenset(
    [
        *(*CLIENTS, "bsub", "qsub", "qrsh", "qlogin", "condor_submit"),
        *("ssh", "pdsh", "clush", "mosh", "rsh", "kubectl", "oc", "gcloud", "az", "aws"),
        *("docker", "podman", "nerdctl", "enroot", "ray", "sky", "torchx", "jsrun", "aprun"),
    ]
)
LOOKS = 4


@dataclass
class LauncherSnapshot:
    """The processes below a launcher, and the looks that were taken at them."""

    launcher: int
    expects_words: bool  # its ranks are ours, and would have spoken
    mark: str = ""  # what all that it started has in its environment, as OUTER_VARIABLE
    looks: dict[int, list[Look]] = field(default_factory=dict)  # by pid, oldest first
    # The same with each main thread as it is, and no other one in its place.
    as_seen: dict[int, list[Look]] = field(default_factory=dict)
    rank_of: dict[int, int] = field(default_factory=dict)  # by the pid of a rank's own process
    parents: dict[int, int] = field(default_factory=dict)
    # Those that have our variables, and a PYTHONPATH without the folder that starts the watch.
    shut_out: list[int] = field(default_factory=list)
    is_elsewhere: bool = False  # the launcher is, or was lately, a client of who starts the ranks
    has_clients: bool = False  # in one of these looks
    ssh_clients: list[SshClient] = field(default_factory=list)  # each of which starts a part of it
    world_size: int = 0  # as the ranks' variables have it
    select: Callable[[Iterable[int]], Iterable[int]] = list  # whose coming and going counts
    failed: Sequence[Look] = ()  # parts of it that have ended by an error
    beside: ProcessesBeside = field(default_factory=ProcessesBeside)

    def find(self) -> list[int]:
        """Find the processes, and which of them are ranks; return their pids."""
        pids = [self.launcher, *sorted(family([self.launcher]))]
        clients = [pid for pid in pids if _is_client(pid)]
        self.has_clients = self.has_clients or bool(clients)
        reached = map(read_ssh_client, map(words_of, clients))
        self.ssh_clients = [one for one in reached if one is not None]
        self.is_elsewhere = self.is_elsewhere or self.has_clients
        if self.is_elsewhere and self.mark:
            started = (marked(OUTER_VARIABLE, self.mark) | find_srun_tasks(clients)) - {os.getpid()}
            pids = [*pids, *sorted(started | set(family(started)) - set(pids))]
        self.parents = {pid: found.ppid for pid in dict.fromkeys(pids) if (found := read_stat(pid))}
        environs = {pid: variables_of(pid) or {} for pid in pids}
        self.shut_out = [pid for pid, environ in environs.items() if _is_shut_out(environ)]
        numbers = {
            p: n for p, environ in environs.items() if (n := find_rank_number(environ)) is not None
        }
        self.rank_of = {}
        for pid in sorted(numbers, key=self._depth):
            # Workers and helpers inherit a rank's number: the topmost Python of it is the rank.
            if numbers[pid] not in self.rank_of.values() and runs_python(pid):
                self.rank_of[pid] = numbers[pid]
        sizes = (_find_world_size(environs[pid]) for pid in self.rank_of)
        self.world_size = max(sizes, default=0)
        # One process of one's own, or what a launcher has started alone and given no number.
        is_launcher_alone = len(pids) == 1 and _is_launcher(self.launcher)
        if not (self.rank_of or self.expects_words or self.is_elsewhere or is_launcher_alone):
            self.rank_of = self._number_programs() or {self._find_program(): 0}
            seen = self.looks.get(self.launcher, ())
            if [*self.rank_of] == [self.launcher] and _find_agent_rendezvous(seen) is not None:
                self.rank_of = {}  # an agent of torch's elastic runs in it: it is a launcher
        return list(self.parents)

    def _list_programs(self) -> list[int]:
        """Return the topmost programs of Python."""
        programs = {pid for pid in self.parents if runs_python(pid)}
        return sorted(pid for pid in programs if not programs & {*self._list_above(pid)})

    def _number_programs(self) -> dict[int, int]:
        """Return by pid the numbers of the programs of a shell that their arguments tell; {} where
        these do not tell those of all.
        """
        programs = self._list_programs() if is_shell(words_of(self.launcher)) else []
        environs = [variables_of(pid) for pid in programs]
        told = number_programs([words_of(pid) for pid in programs], environs=environs)
        return dict(zip(programs, told.numbers, strict=True)) if told is not None else {}

    def _find_program(self) -> int:
        """Return the process that stands for a job without ranks: the command itself; below a shell
        the first program of Python that it waits for, as `attach` takes it: one that does not only
        wait for requests, as far as there is one.
        """
        if runs_python(self.launcher):
            return self._find_awaited_program() or self.launcher
        topmost = self._list_programs()
        if len(topmost) < 2 and not is_shell(words_of(self.launcher)):
            return self.launcher
        return min(topmost, key=self._only_serves, default=self.launcher)

    def _find_awaited_program(self) -> int | None:
        """Return the only program of Python that the command has started and does nothing but wait
        for, where that has loaded what makes a Python a job and the command has not: what `conda
        run` has started, or the agent of a sweep.
        """
        looks = self.looks.get(self.launcher, [])
        task = main_kernel(looks[-1]) if looks else None
        if task is None or task.syscall is None or task.syscall.name not in CHILD_WAIT_CALLS:
            return None
        below = {pid for pid in self.parents if pid != self.launcher and runs_python(pid)}
        topmost = [pid for pid in below if not below & {*self._list_above(pid)}]
        is_program = len(topmost) == 1 and not starts_for_multiprocessing(words_of(topmost[0]))
        if not is_program or words_of(topmost[0]) == words_of(self.launcher):
            return None
        is_job = has_loaded_library(topmost[0]) and not has_loaded_library(self.launcher)
        return topmost[0] if is_job else None

    def _only_serves(self, pid: int) -> bool:
        looks = self.looks.get(pid, [])
        return bool(looks) and waits_for_requests(looks[-1])

    def _list_above(self, pid: int) -> Iterator[int]:
        while pid in self.parents and pid != self.launcher:
            pid = self.parents[pid]
            yield pid

    @property
    def sees_nothing(self) -> bool:
        """The job waits in a queue, or more of it runs than is below the launcher here: who sees a
        part of a job judges none of it.
        """
        return (self.is_elsewhere and not self.rank_of) or 0 < len(self.rank_of) < self.world_size

    @property
    def spans_nodes(self) -> bool:
        """Whether it has started no rank yet, and has to start some on several nodes."""
        if set(self.rank_of) - {self.launcher}:
            return False
        if any(several_nodes(words_of(pid), variables_of(pid) or {}) for pid in self.parents):
            return True
        return bool(self.describe_node_wait())  # an agent in a program of the user's own

    def find_meeting_place(self) -> str:
        """Return where an agent of it is to meet those of other nodes, as host:port; "" for none or
        where its command does not say it.
        """
        return next(
            (place for pid in self.parents if (place := find_meeting_place(words_of(pid)))), ""
        )

    def describe_node_wait(self) -> str:
        """Return what an agent of it sees of the nodes that it waits for, "" where none waits."""
        meetings = map(_find_agent_rendezvous, self.looks.values())
        return next((str(one) for one in meetings if one is not None), "")

    def list_lost_agents(self, hosts: Mapping[str, str]) -> list[str]:
        """Return in words whose agents an agent of it waits for at the end, and sees no more."""
        return [
            one for looks in self.looks.values() for one in list_agents_lost_at_end(looks, hosts)
        ]

    async def look(self) -> None:
        """Look at all of them once."""
        try:
            pids = within(FIND_LIMIT, self.find)
        except TimeoutError:  # an environment that cannot be read: what is known will have to do
            pids = list(self.parents)
        tops = {*self.rank_of, self.launcher}
        others = {*self.select(pids), *tops}
        shown = [pid for pid in leave_out_services(pids) if pid in others]
        targets = [Target(pid, "rank" if pid in tops else "child") for pid in shown]
        for one in await take_good_looks(targets):
            if one.state:
                before = self.as_seen.setdefault(one.pid, [])
                one = complete_look(before[-1], one) if before else one
                before.append(one)
                kept = self.looks.setdefault(one.pid, [])
                one = put_stuck_request_first(put_job_thread_first(one))
                kept.append(put_same_thread_first(kept, one))
        self._find_beside()

    def _find_beside(self) -> None:
        """Find whom a program of a shell waits for among those that the shell started beside it."""
        if self.launcher in self.rank_of or self.is_elsewhere:
            return
        for top in self.rank_of:
            below = {pid for pid in self.parents if self._top_of(pid) == top}
            seen = [(top, looks[-1]) for pid, looks in self.looks.items() if pid in below]
            seen += [(top, self.looks[p][-1]) for p in self.beside.asked_by if p in self.looks]
            self.beside.find(seen, below)

    def moved(self) -> str:
        """Return what moved over the looks, in words; "" for nothing.

        That a script of the user's own prints something counts: it may sleep in between, and it
        cannot be asked what it does.
        """
        seen = [
            f"the event loop of {looks[-1].name} ({pid}) computes"
            for pid, looks in self.as_seen.items()
            if is_loop_at_work(looks)
        ]
        for looks in self._select_counting_looks():
            if is_resource_tracker(looks[-1].command) or _find_agent_rendezvous(looks) is not None:
                continue  # it hears of what others make, and nobody waits for it; or it only asks
            if len(looks) > 1 and (
                what := movement.describe_movement(looks, []) or self._printed(looks)
            ):
                seen.append(what)
        return seen[0] if seen else ""

    def _select_counting_looks(self) -> Iterator[Sequence[Look]]:
        """Yield the looks at each process whose movement counts: not those at what is below a rank,
        and its wait cannot depend on.
        """
        below = {p: top for p in self.looks if (top := self._top_of(p)) in self.looks and top != p}
        yield from (looks for pid, looks in self.looks.items() if pid not in below)
        for rank in sorted({top for top in below.values() if top is not None}):
            children = [self.looks[p] for p, top in below.items() if top == rank]
            yield from keep_children_that_feed(self.looks[rank], children)

    def _printed(self, looks: Sequence[Look]) -> str:
        first, last = looks[0].sample, looks[-1].sample
        if self.expects_words or first is None or last is None or first.started != last.started:
            return ""
        written = last.main_written - first.main_written
        return f"writes {format_rate(written, last.at - first.at)}" if written > 0 else ""

    def facts(self, started: float) -> list[RankFacts]:
        """Return each rank as a diagnosis takes it; the launcher in the place of rank 0 where no
        rank was started.
        """
        found = []
        for pid, rank in (self.rank_of or {self.launcher: 0}).items():
            inside = [p for p in self.parents if self._top_of(p) == pid and p != pid]
            gone = [one for one in self.failed if one.pid not in self.parents]
            beside = tuple(one.pid for one in gone if one.ppid not in {pid, *inside})
            asked = [p for p, top in self.beside.asked_by.items() if top == pid and p in self.looks]
            found.append(
                RankFacts(
                    rank=rank,
                    local_rank=rank,
                    pid=pid,
                    host=socket.gethostname(),
                    reached=0 if self.rank_of else -1,
                    step=None if self.expects_words else SILENT,
                    entered=started,
                    never_started=bool(self.rank_of) and self.expects_words,
                    environment=_read_environment(pid),
                    looks=tuple(self.looks.get(pid, ())),
                    children=(
                        *(tuple(self.looks[p]) for p in (*inside, *asked) if self.looks.get(p)),
                        *((one,) for one in gone),
                    ),
                    beside=(*beside, *asked),
                )
            )
        return sorted(found, key=lambda facts: facts.rank)

    def _depth(self, pid: int) -> int:
        return len([*self._list_above(pid)])

    def _top_of(self, pid: int) -> int | None:
        """Return the rank's process that a process is or descends from."""
        tops = self.rank_of or {self.launcher: 0}
        while pid not in tops:
            if pid not in self.parents:
                return None
            pid = self.parents[pid]
        return pid


async def look_from_outside(
    launcher: int,
    expects_words: bool,
    mark: str = "",
    is_elsewhere: bool = False,
    select: Callable[[Iterable[int]], Iterable[int]] = list,
    failed: Sequence[Look] = (),
) -> LauncherSnapshot:
    """Return what some looks at everything below a launcher show; `is_elsewhere`: it was lately a
    client of who starts the ranks. `select`: those of these processes whose coming and going moves
    something on; `failed`: what a shell has started, and that has ended by an error.
    """
    outside = LauncherSnapshot(
        launcher, expects_words, mark, is_elsewhere=is_elsewhere, select=select, failed=failed
    )
    for turn in range(LOOKS):
        if turn:
            await asyncio.sleep(PAUSE)
        await outside.look()
    return outside


# The verdict, and what it rests on.
LauncherJudgement = tuple[Verdict, JobFacts, Snapshot, WaitGraph]


async def judge_from_outside(
    outside: LauncherSnapshot,
    ended: Ended,
    command: Sequence[str],
    table: Sequence[Checkpoint],
    started: float,
    still: float | None = None,
    late_since: float | None = None,
    restarted: RestartedProcess | None = None,
    notes: Sequence[str] = (),
    silent_hosts: Mapping[str, str] | None = None,
) -> LauncherJudgement:
    """Return the verdict on a job of which no rank has spoken, and what it rests on; `restarted`:
    what has ended again and again below it; `silent_hosts`: those that do not answer the launcher.
    """
    # Not at the top: nearly all jobs end well, and the watcher starts beside them.
    from ..collect.source_facts import add_printed_lines, add_source_facts

    ranks, said = outside.facts(started), tuple[str, ...]()
    if outside.rank_of and ended in NOTHING_MOVES:
        ranks, said = await _ask_libraries(ranks, started)
    ranks = await add_source_facts(await add_printed_lines(ranks))
    now = time.monotonic()
    facts = JobFacts(
        ended=ended,
        pipeline=pipeline_of(command) if outside.expects_words else "",
        command=tuple(command),
        world_size=len(ranks),
        local_ranks=tuple(facts.rank for facts in ranks),
        table=tuple(table[:2]),
        now=now,
        started=started,
        still=still,
        past_deadline=round(now - late_since, 3) if late_since else None,
        to_verdict=round(now - late_since, 3) if late_since else None,
        versions={"hangbisect": VERSION},
        machine=await read_machine(since=started),
        restarted=restarted,
        notes=tuple(notes),
        said=said,
        silent_hosts=dict(silent_hosts or {}),
    )
    seen = Snapshot(ranks)
    if outside.rank_of and ended in NOTHING_MOVES:
        facts, found = take_spawned_ranks(facts, seen)
        if found is not seen:  # they were processes of their program, of which less is read
            seen = found.update(await add_source_facts(found.ranks))
    verdict, graph = judge_snapshot(facts, seen)
    if not outside.rank_of:
        verdict, facts = blame_launcher(verdict), replace(facts, world_size=0)
    return verdict, facts, seen, graph


async def _ask_libraries(
    ranks: Sequence[RankFacts], started: float
) -> tuple[list[RankFacts], tuple[str, ...]]:
    """Return the ranks with what NCCL, torch's recorders and the libraries' files tell of them, and
    what is to be said of that.
    """
    # Not at the top: nearly all jobs end well, and the watcher starts beside them.
    from ..collect.library_facts import add_library_facts, add_recorder_dumps, read_library_facts
    from ..collect.looks import add_ras_logs, ask_ras

    ras = await ask_ras(ranks)
    dumped, in_vain = await add_recorder_dumps(
        add_ras_logs(ranks, ras), started=started, world=len(ranks)
    )
    printed = await read_library_facts(dumped, started)
    return add_library_facts(dumped, printed), (*ras.notes, *in_vain, *printed.notes)


def _read_environment(pid: int) -> dict[str, str]:
    """Return the variables that matter of those that a process was started with."""
    try:
        variables = within(_ENVIRONMENT_LIMIT, variables_of, pid)
    except TimeoutError:
        return {}
    return relevant(variables or {})


def blame_launcher(verdict: Verdict) -> Verdict:
    """Return the verdict where it is the launcher that hangs: no rank is there to be blamed."""
    return replace(
        verdict, world_size=0, ranks=Ranks(), component="launcher", try_=(), candidates=(), chain=()
    )


def make_unspoken_verdict(
    command: Sequence[str], pipeline: str, started: float, status: int | None, note: str
) -> Verdict:
    """Return the verdict on a job that was not watched from inside: by its exit status alone."""
    facts = JobFacts(
        ended="done" if status == 0 else "crash",
        pipeline=pipeline,
        command=tuple(command),
        now=time.monotonic(),
        started=started,
        versions={"hangbisect": VERSION},
        notes=(note,),
    )
    return make_verdict_skeleton(facts, (), "ok" if status == 0 else "crash", Ranks())


def _find_agent_rendezvous(looks: Sequence[Look]) -> NodeRendezvous | None:
    """Return what an agent that asks again and again who has come sees of that, None for any other
    process. A look for which the sockets could not be listed in time does not hide others.
    """
    view = merge_looks([look for look in looks if look.sockets] or looks)
    return find_node_rendezvous(view) if view is not None else None


def _is_client(pid: int) -> bool:
    """Return whether a process is a client of a scheduler or of another machine: what it starts is
    not below it.
    """
    words = words_of(pid)
    first = [os.path.basename(word) for word in words[:3]]
    if any(word in _CLIENTS for word in first):
        return True
    return any(find_hosts_flag(find_typed_launcher(word), words[1:]) for word in first)


def _is_launcher(pid: int) -> bool:
    """Return whether a process is a launcher that is known, as a person starts it."""
    return any(find_typed_launcher(os.path.basename(word)).name for word in words_of(pid)[:3])


def _find_world_size(environ: Mapping[str, str]) -> int:
    """Return the number of ranks that a rank's environment names, 0 for none."""
    return max((number(environ, names.world_size) or 0 for names in DIALECTS.values()), default=0)


def _is_shut_out(environ: Mapping[str, str]) -> bool:
    paths = environ.get("PYTHONPATH", "").split(os.pathsep)
    return bool(environ.get(PACKAGE_VARIABLE)) and START_UP not in paths
