"""What a known cause is: signs to look for in a scene, an explanation, and what avoids it. A scene
is what a sign may look at: the verdict so far, and the facts it rests on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache

from ...base.addresses import host_of, is_local, is_talking, may_be, port_of, proxies
from ...base.identity import RankId
from ...base.lazy_dataclass import dataclass
from ...base.library_functions import Role, find_role
from ...base.process_facts import Descriptor, Frame, Kernel, Look, Socket, Syscall
from ...base.rank_facts import JobFacts, MachineFacts, RankFacts
from ...base.verdict_facts import Cause, Level, Outcome, Verdict
from ..collectives.collective_mismatch import Mismatch
from ..collectives.common_path import CollectivePlace, find_collective_place
from ..collectives.log_divergence import find_mismatch
from ..disagreements import Disagreement, find_disagreement
from ..process.blocked_syscalls import find_socket_by_inode
from ..process.frames import frame_owner, job_frames, keep_by_stack, unqualified_name
from ..process.process_snapshot import ProcessSnapshot, find_descendants, merge_looks
from ..process.public_calls import GroupWait, find_group_wait
from ..rank_waits import RankWait, sort_by_telling
from ..rendezvous_claims import read_group_values
from ..rounds import OtherRound, find_other_round
from ..single_ranks import is_gone
from ..wait_graph import WaitGraph


@dataclass(frozen=True)
class Scene:
    """A job that hangs, crashed or is slow: the verdict without its cause, and all facts.

    `verdict` has culprits, call, component and what is waited for. Matchers may use frames of
    public libraries, facts of the kernel, and what differs between ranks.
    """

    job: JobFacts
    ranks: tuple[RankFacts, ...]
    verdict: Verdict
    situations: Mapping[RankId, RankWait] = field(default_factory=dict)
    graph: WaitGraph | None = None
    # Processes of the job that `ranks` do not show, by pid, each with the looks at it.
    relatives: Mapping[int, Sequence[Look]] = field(default_factory=dict)

    @cached_property
    def subject(self) -> RankFacts | None:
        """The rank that the verdict is about: the culprit that tells most of those that live, else
        one that waits, else a culprit.
        """
        told = sort_by_telling(self.verdict.ranks.culprit, self.situations)
        chosen = [r for rank in told if (r := self.rank(rank))]
        living = [r for r in chosen if r.looks and r.alive]
        waits = {*self.verdict.ranks.waiting}
        waiting = [r for r in self.ranks if r.rank in waits and r.looks]
        return next(iter([*living, *waiting, *chosen]), None)

    @cached_property
    def culprits(self) -> tuple[RankFacts, ...]:
        return tuple(r for rank in self.verdict.ranks.culprit if (r := self.rank(rank)))

    @cached_property
    def living(self) -> tuple[RankFacts, ...]:
        """The ranks that live and were looked at."""
        return tuple(r for r in self.ranks if r.looks and not is_gone(r))

    @cached_property
    def others_move(self) -> bool:
        """Whether of a job that hangs a rank besides the subject moves: it may be on its way to
        where the others wait, and what holds them up is known only then.
        """
        others = (one for one in self.living if one is not self.subject)
        return self.verdict.outcome == "hang" and any(one.moved for one in others)

    @cached_property
    def views(self) -> Mapping[RankId, ProcessSnapshot]:
        """Each living rank, by number, as its looks show it together."""
        found = {r.rank: self.situations[r.rank].view for r in self.living}
        return {rank: view for rank, view in found.items() if view is not None}

    @cached_property
    def collective_places(self) -> tuple[CollectivePlace, ...]:
        """Where each living rank that waits in a collective does so, by its frames."""
        package = self.job.package
        found = (find_collective_place(rank, view, package) for rank, view in self.views.items())
        return tuple(place for place in found if place is not None)

    @cached_property
    def group_values(self) -> Mapping[RankId, Mapping[str, int]]:
        """Rank and world size with which each living rank makes its group, from locals of torch's
        frames: Lightning passes them without any variable.
        """
        return {rank: read_group_values(view.frames) for rank, view in self.views.items()}

    @cached_property
    def view(self) -> ProcessSnapshot | None:
        """The subject as its looks show it together."""
        if self.subject is None:
            return None
        return self.views.get(self.subject.rank) or merge_looks(self.subject.looks)

    @cached_property
    def call(self) -> str:
        """The name of the system call that the subject is in, "" if that is not known."""
        return self.view.call_name if self.view else ""

    @cached_property
    def group(self) -> GroupWait | None:
        """In which way the subject waits for its peers, None if it does not."""
        return find_group_wait(self.view) if self.view else None

    @cached_property
    def frames(self) -> tuple[Frame, ...]:
        """The subject's main thread, innermost first, native frames included."""
        return self.view.frames if self.view else ()

    @cached_property
    def python(self) -> tuple[Frame, ...]:
        """The Python frames of the job on the subject's main thread, innermost first."""
        return job_frames(self.frames, self.job.package)

    @cached_property
    def inner(self) -> tuple[Frame, ...]:
        """The subject's frames inside of what the job's own code called: a library's alone."""
        own = ("user", "step")
        last = next(
            (i for i, f in enumerate(self.frames) if frame_owner(f, self.job.package) in own), None
        )
        return self.frames[:last]

    @cached_property
    def children(self) -> tuple[Look, ...]:
        """The last look at each living descendant of the subject."""
        families = self.subject.children if self.subject else ()
        found = tuple(looks[-1] for looks in families if looks and looks[-1].state not in "ZX")
        return tuple(look for look in found if look.pid not in self.beside)

    @cached_property
    def workers(self) -> tuple[ProcessSnapshot, ...]:
        """Each living descendant of the subject as its looks show it together."""
        families = self.subject.children if self.subject else ()
        own = (looks for looks in families if looks and looks[-1].pid not in self.beside)
        views = (merge_looks(looks) for looks in own)
        return tuple(view for view in views if view is not None and view.state not in "ZX")

    @cached_property
    def beside(self) -> Mapping[int, ProcessSnapshot]:
        """By pid the living processes of the subject's machine that were started beside the ranks,
        and that one of them asks.
        """
        families = (
            looks
            for facts in self.neighbours
            for looks in facts.children
            if looks and looks[-1].pid in facts.beside
        )
        views = {looks[-1].pid: merge_looks(looks) for looks in families}
        return {p: view for p, view in views.items() if view is not None and view.state not in "ZX"}

    @cached_property
    def started(self) -> frozenset[int]:
        """The pids of what the subject has started: all of `workers` but what has started itself,
        or stands beside it, in an inference server.
        """
        subject = self.subject
        if subject is None or subject.pid is None:
            return frozenset()
        below = find_descendants(subject, subject.pid)
        return frozenset(looks[-1].pid for looks in below)

    @cached_property
    def mismatch(self) -> Mismatch | None:
        """Where the logs of the ranks show first that they called different collectives."""
        return find_mismatch(self.ranks)

    @cached_property
    def disagreement(self) -> Disagreement | None:
        """What the culprits and others that stand in the same call do not agree about."""
        found = find_disagreement(self.ranks, self.situations, self.job.package)
        if found is None or {*found.ranks} != {*self.verdict.ranks.culprit}:
            return None
        return found

    @cached_property
    def other_round(self) -> OtherRound | None:
        """In which other round than most ranks the culprits are, all in the same place."""
        found = find_other_round(self.ranks, self.situations, self.job.package)
        if found is None or {*found.ranks} != {*self.verdict.ranks.culprit}:
            return None
        return found

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """What matters of the subject's environment."""
        return self.subject.environment if self.subject else {}

    @cached_property
    def family(self) -> tuple[Look, ...]:
        """The last look at the subject and at each of its living descendants."""
        return (self.view.look, *self.children) if self.view else self.children

    @cached_property
    def job_pids(self) -> frozenset[int]:
        """The processes of the job on the subject's machine, as far as they are known: ranks and
        their descendants.
        """
        pids = {*self.relatives, *(r.pid for r in self.neighbours if r.pid is not None)}
        for facts in self.neighbours:
            found = (look.pid for looks in (facts.looks, *facts.children) for look in looks)
            pids.update(pid for pid in found if pid not in facts.beside)
        return frozenset(pids)

    @cached_property
    def machine(self) -> MachineFacts:
        """The subject's machine."""
        return self.job.machine_of(self.subject.host if self.subject else "")

    @cached_property
    def neighbours(self) -> tuple[RankFacts, ...]:
        """The ranks on the subject's machine, itself among them."""
        host = self.subject.host if self.subject else None
        return tuple(r for r in self.ranks if host is None or r.host == host)

    def rank_of(self, pid: int | None, host: str = "") -> RankId | None:
        """Return which rank a process is, None if it is none; "": one of the subject's machine."""
        there = [r for r in self.ranks if r.host == host] if host else self.neighbours
        return next((r.rank for r in there if r.pid is not None and r.pid == pid), None)

    @cached_property
    def _own_ends(self) -> frozenset[str]:
        """The local addresses of all sockets of the job: a peer among them is the job itself."""
        families = (fam for r in self.ranks for fam in (r.looks, *r.children) if fam)
        return frozenset(s.local for fam in families for s in fam[-1].sockets if s.local)

    @cached_property
    def blocking(self) -> Socket | None:
        """The socket with another end that the subject's system call is about, if there is one."""
        return self._socket_of(self.view.call) if self.view else None

    @cached_property
    def blocking_threads(self) -> tuple[Socket, ...]:
        """The same for the system calls of the subject's other threads."""
        if self.view is None:
            return ()
        look = self.view.look
        return self._sockets_of(task for task in look.kernel if task.tid != look.pid)

    @cached_property
    def blocking_natively(self) -> tuple[Socket, ...]:
        """The same for those of them that are no threads of Python: a library's own."""
        if self.view is None or not self.view.threads:
            return ()
        python = {thread.os_id for thread in self.view.threads}
        return self._sockets_of(task for task in self.view.look.kernel if task.tid not in python)

    def _sockets_of(self, tasks: Iterable[Kernel]) -> tuple[Socket, ...]:
        return tuple(s for k in tasks if (s := self._socket_of(k.syscall)) is not None)

    def _socket_of(self, call: Syscall | None) -> Socket | None:
        """Return the socket with another end that a call is about: of several, as an event loop
        has them, one that leads out of the job before its own.
        """
        found = [
            socket
            for descriptor in (call.descriptors if call else ())
            if (socket := self._socket_at(descriptor)) is not None
            and (is_talking(socket) or is_local(socket))
        ]
        own = {self.view.look.pid} if self.view else set()
        strangers = (s for s in found if s.remote is None and not set(s.peer_pids) & self.job_pids)
        others = (s for s in found if s.remote is not None or set(s.peer_pids) - own)
        return next(strangers, None) or next(others, None) or next(iter(found), None)

    def _socket_at(self, descriptor: Descriptor) -> Socket | None:
        if descriptor.socket is not None or self.view is None:
            return descriptor.socket
        return find_socket_by_inode(descriptor, self.view.look)

    @cached_property
    def awaited(self) -> tuple[Socket, ...]:
        """The connections out of the job that something waits for: what the subject's system call
        is about, else those of its other threads; those of a helper, if it waits for that.
        """
        wait = self.verdict.waits_for
        helper = wait.pid if wait is not None and wait.kind == "process" else None
        return tuple(s for look, s in self.outward if s in self.asked or look.pid == helper)

    @cached_property
    def asked(self) -> tuple[Socket, ...]:
        """The sockets that the subject's system call is about, else those of its other threads."""
        return (self.blocking,) if self.blocking is not None else self.blocking_threads

    @cached_property
    def awaited_peers(self) -> tuple[Socket, ...]:
        """The sockets that something waits for whose other end a process outside the job has."""
        return tuple(s for s in self.asked if s.peer_pids and not set(s.peer_pids) & self.job_pids)

    @cached_property
    def outward(self) -> tuple[tuple[Look, Socket], ...]:
        """The connections by which the subject or a descendant talks to something that is not of
        the job, with who has them; the store and what forked workers inherited left out.
        """
        found: dict[int, tuple[Look, Socket]] = {}
        store = self.environment.get("MASTER_PORT", "")
        for look in self.family:
            for socket in look.sockets:
                inside = set(socket.peer_pids) & self.job_pids or socket.peer in self._own_ends
                if is_talking(socket) and not inside and port_of(socket.peer) != store:
                    found.setdefault(socket.inode, (look, socket))
        return tuple(found.values())

    def all_looks(self, pid: int) -> tuple[Look, ...]:
        """Return all looks at the subject or at a descendant of it, oldest first."""
        subject = self.subject
        families = (subject.looks, *subject.children) if subject else ()
        families += tuple(looks for r in self.neighbours if r.beside for looks in r.children)
        return next((looks for looks in families if looks and looks[-1].pid == pid), ())

    def proxy_at(self, address: str) -> str:
        """Return the variable that names `address` as a proxy, "" if none does."""
        for name, (host, port) in proxies(self.environment).items():
            if port == port_of(address) and may_be(host, host_of(address), port):
                return name
        return ""

    def rank(self, rank: RankId) -> RankFacts | None:
        return next((r for r in self.ranks if r.rank == rank), None)

    def frame(self, file: str, function: str = r".*") -> Frame | None:
        """Return the innermost frame of the subject in `file` (a regular expression for the end of
        the path) and `function` (one for its unqualified name).
        """
        return find_frame(self.frames, file, function)

    def ranks_in(self, file: str, function: str = r".*") -> tuple[RankId, ...]:
        """Return the living ranks whose main thread has such a frame, as in `frame`."""
        find = keep_by_stack(find_frame)
        return tuple(n for n, view in self.views.items() if find(view.frames, file, function))

    def ranks_with(self, role: Role) -> tuple[RankId, ...]:
        """Return the living ranks whose main thread is in a function with a role."""
        find = keep_by_stack(find_role)
        return tuple(n for n, view in self.views.items() if find(view.frames, role))

    def waiting_for_it(self) -> tuple[RankId, ...]:
        """Return the ranks that wait for a culprit, as far as that is known."""
        guilty = set(self.verdict.ranks.culprit)
        waiting = self.verdict.ranks.waiting
        return tuple(
            r
            for r in waiting
            if r not in self.situations or self.situations[r].other_awaited & guilty
        )

    def wrote(
        self, pattern: str, ranks: Sequence[RankFacts] | None = None
    ) -> tuple[RankFacts, re.Match[str]] | None:
        """Return the first match in what ranks (the culprits if None) ended with: their error and
        its traceback; of those that left no error, the last lines that their libraries logged.
        """
        for facts in self.culprits if ranks is None else ranks:
            logged = () if facts.error else facts.output
            for text in (facts.error, facts.traceback, *logged):
                match = re.search(pattern, text) if text else None
                if match is not None:
                    return facts, match
        return None

    def inside(self, file: str, function: str = r".*") -> Frame | None:
        """Return the innermost frame, as in `frame`, below the job's own code: what a library does
        that the job called, not one that runs the job (a sweep's agent, a worker of Ray).
        """
        return find_frame(self.inner, file, function)

    def users_frame(self, frames: Iterable[Frame]) -> Frame | None:
        """Return the innermost of `frames` that is the job's own code, of no library."""
        return next((f for f in frames if frame_owner(f, self.job.package) == "user"), None)


def find_frame(frames: tuple[Frame, ...], file: str, function: str = r".*") -> Frame | None:
    """Return the first of `frames` that matches, as in `Scene.frame`."""
    return next((f for f in frames if _matches(file, function, f.file, f.name)), None)


@lru_cache(maxsize=1 << 16)  # a thousand ranks have few different frames
def _matches(file: str, function: str, path: str, name: str) -> bool:
    return bool(re.search(rf"(?:{file})$", path) and re.fullmatch(function, unqualified_name(name)))


LEAST_AGREEMENT = 0.5  # below this a cause is not said
FITS = 0.6  # from here on its signs agree; below this it is a guess


@dataclass(frozen=True)
class Found:
    """A fact that speaks for a cause: a sentence for people, and values for the explanation.

    `trust`, from 0 to 1, is less where it is weaker than what its sign usually finds. `doubtful`:
    it would look the same if another cause were the right one, so this one is a guess.
    """

    sentence: str
    values: Mapping[str, object] = field(default_factory=dict)
    trust: float = 1.0
    doubtful: bool = False


LooksFor = Callable[[Scene], Found | None]


@dataclass(frozen=True)
class Sign:
    """Something to look for. `weight`: how far it alone would convince, from 0 to 1: it puts the
    causes of one scene in order.

    A sign that is `needed` and not found rules the cause out; so does one that speaks `against`
    it and is found. One that `proves` it is the kernel's word, or a log's, that it is so.
    """

    looks_for: LooksFor
    weight: float
    needed: bool = False
    against: bool = False
    proves: bool = False

    @property
    def words(self) -> str:
        """What is looked for, as a person says it: the first sentences of the docstring."""
        first = (self.looks_for.__doc__ or "").strip().partition("\n\n")[0]
        return " ".join(first.split()).rstrip(".")


def describe_sign(words: str) -> Callable[[LooksFor], LooksFor]:
    """Return a decorator that gives a function made by another one its words (its docstring)."""

    def with_words(looks_for: LooksFor) -> LooksFor:
        looks_for.__doc__ = words
        return looks_for

    return with_words


def need(looks_for: LooksFor, weight: float, *, proves: bool = False) -> Sign:
    """Return a sign without which the cause is out of the question."""
    return Sign(looks_for, weight, needed=True, proves=proves)


def also(looks_for: LooksFor, weight: float, *, proves: bool = False) -> Sign:
    """Return a sign that makes the cause more likely."""
    return Sign(looks_for, weight, proves=proves)


def unless(looks_for: LooksFor) -> Sign:
    """Return a sign that rules the cause out."""
    return Sign(looks_for, 0.0, against=True)


@dataclass(frozen=True)
class KnownCause:
    """A cause that people reported, and how to recognise it.

    `why` is a sentence or two, filled in with the values of the signs that were found
    (str.format; a value that no sign gave leaves "?"). `toggles` are (toggle, value) of
    toggles/table.py; `avoid` what to do besides, in words or as commands, filled in too.
    """

    id: str
    title: str
    signs: tuple[Sign, ...]
    why: str
    avoid: tuple[str, ...] = ()
    toggles: tuple[tuple[str, str], ...] = ()
    cannot_help: tuple[str, ...] = ()  # toggles of the component that change nothing about this
    references: tuple[str, ...] = ()  # public: "wandb/wandb#5214"
    outcomes: tuple[Outcome, ...] = ("hang", "interrupted")

    def match(self, scene: Scene) -> Cause | None:
        """Return the cause as this scene shows it, None if it does not."""
        if scene.verdict.outcome not in self.outcomes:
            return None
        facts: dict[Sign, Found] = {}
        # What rules it out comes first: most causes are out of the question at a glance.
        for sign in sorted(self.signs, key=lambda sign: not (sign.needed or sign.against)):
            fact = sign.looks_for(scene)
            if (sign.needed and fact is None) or (sign.against and fact is not None):
                return None
            if fact is not None:
                facts[sign] = fact
        found = [facts[sign] for sign in self.signs if sign in facts]
        agreement = round(1.0 - math.prod(1.0 - weight for weight in _weights(facts)), 2)
        is_doubtful = scene.others_move or any(fact.doubtful for fact in found)
        values = _Values({k: v for fact in found for k, v in fact.values.items()})
        return Cause(
            self.id,
            self.title,
            self.why.format_map(values),
            find_level(_is_proved(facts), agreement, is_doubtful),
            tuple(dict.fromkeys(fact.sentence for fact in found if fact.sentence)),
            tuple(text.format_map(values) for text in self.avoid),
            agreement,
        )


def find_level(is_proved: bool, agreement: float, is_doubtful: bool = False) -> Level:
    """Return how much is known where signs agree so far, from 0 to 1."""
    if is_proved:
        return "seen"
    return "fits" if agreement >= FITS and not is_doubtful else "guess"


def _is_proved(facts: Mapping[Sign, Found]) -> bool:
    return any(sign.proves and fact.trust >= 1.0 for sign, fact in facts.items())


def _weights(facts: Mapping[Sign, Found]) -> Iterable[float]:
    """Return how far each fact convinces: one that several signs show counts once."""
    weights: dict[object, float] = {}
    for sign, fact in facts.items():
        what = fact.sentence or sign
        weights[what] = max(weights.get(what, 0.0), sign.weight * fact.trust)
    return weights.values()


class _Values(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return "?"


def choose_likeliest(causes: list[Cause]) -> Cause | None:
    """Return the cause to name: that whose signs agree most, with more facts before fewer."""
    likely = [cause for cause in causes if cause.agreement >= LEAST_AGREEMENT]
    return max(likely, key=lambda c: (c.agreement, len(c.matched)), default=None)
