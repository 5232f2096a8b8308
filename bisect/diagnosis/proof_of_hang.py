"""What proves a hang, and what only waits for work to come. Pure.

A job of the user's own may be a server without a request, a program that waits for an answer, or
one that is slow in a way that no look shows. It is ended only where something proves that what
stands still does not go on by itself: an owner is dead or stopped, a ring, an end that is closed,
ranks out of step, a peer that does not exist.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile

from ..base.addresses import host_of, is_loopback
from ..base.identity import ProcessId, RankId
from ..base.process_facts import Look, Syscall
from ..base.rank_facts import RankFacts
from ..base.verdict_facts import Verdict, Wait
from ..base.words import format_seconds
from .process.blocked_syscalls import OPEN_CALLS, POLL_CALLS, list_awaited_pids
from .process.frames import serves_multiprocessing
from .process.helper_processes import has_failed, is_halted
from .process.process_snapshot import main_kernel
from .process.request_threads import (
    has_client_inside,
    list_unanswered_clients,
    list_untaken_ports,
)
from .process.time_limits import LONGEST_LIMIT, gives_up_a_lock, is_asleep, read_time_left
from .single_ranks import is_gone
from .snapshot import Snapshot
from .wait_graph import WaitGraph

# Seconds of a job, after which a rank that was not started is not late any more.
_ABSENT_AFTER = 60.0
# Causes that say of a needed process that it is gone, stopped, or waits for itself.
_PROVING = {
    "a lock, or what it protects, belongs to one that is gone": (
        *("stale-build-lock", "lock-file-left", "dead-owner", "dead-producer"),
        "slots-not-given-back",
        *("tokenizers-after-fork", "rust-pool-after-fork", "thread-lost-by-fork"),
        *(
            "lock-after-fork",
            "worker-dead",
            "pipe-writer-gone",
            "pool-worker-lost",
            "openmp-after-fork",
        ),
    ),
    "each waits for the next, and the last one for the first": (
        *("deadlock", "self-deadlock", "lock-order", "pool-waits-for-itself"),
        "answer-after-weights",
        *("import-deadlock", "loader-deadlock", "metric-lock", "server-asks-itself"),
        "loop-waits-for-itself",
    ),
    "a process is stopped by a signal": ("stopped",),
    "the process group is made for more ranks than there are": ("world-size-too-large",),
}
# The same of ranks that are all in collectives, and not in the same ones.
_OUT_OF_STEP = frozenset(
    [
        *("rank-conditional-collective", "collective-mismatch", "group-on-some-ranks"),
        *("ddp-on-some-ranks", "different-parameters", "uneven-batches", "metric-lock"),
        *("uneven-rounds", "message-left-out", "swallowed-exception"),
        "collectives-in-two-threads",
    ]
)
# Of these it is a guess which rank is wrong where only frames tell; that all ranks wait, in calls
# that do not go together, is seen.
_SEEN_BY_FRAMES = frozenset(["rank-conditional-collective", "collective-mismatch"])
_ACCEPTS = frozenset(["accept", "accept4"])
_SERVES = POLL_CALLS | _ACCEPTS
# Where Python waits for requests, if its call names no socket (epoll): the innermost frames are in
# these files, and one of them is such a function.
_LOOP_FILES = ("/selectors.py", "/asyncio/", "/uvloop/", "/socketserver.py")
_LOOPS = frozenset(["run_forever", "_run_once", "run", "run_until_complete", "serve_forever"])


def find_proof_of_hang(verdict: Verdict, snapshot: Snapshot, graph: WaitGraph) -> str:
    """Return in words what proves the hang of `verdict`, "" if nothing does."""
    if verdict.outcome != "hang" or gives_up_a_lock(verdict, snapshot.ranks):
        return ""
    return (
        _missing_peer(verdict)
        or _named_by_cause(verdict, snapshot)
        or _ring(verdict, graph)
        or _waits_for_itself(verdict, snapshot.ranks)
        or _sleeps_too_long(verdict, snapshot.ranks)
        or ""
    )


def describe_waiting_for_work(ranks: Sequence[RankFacts]) -> str:
    """Return in words why ranks that stand still are only waiting for work to come: each living one
    is a server without a request. "" if that is not so, a process of such a server has died of an
    error (an answer may be to come from there), one of them has asked another one, or connections
    are there that such a server does not accept.
    """
    living = [facts for facts in ranks if not is_gone(facts)]
    if any(looks and has_failed(looks[-1]) for facts in living for looks in facts.children):
        return ""
    # Those that hear one another wait for one another, though each of them listens as well.
    own = {ProcessId(facts.host, facts.pid) for facts in living if facts.pid is not None}
    for facts in living:
        heard = list_awaited_pids(facts.looks[-1]) if facts.looks else ()
        if any(ProcessId(facts.host, pid) in own for pid in heard):
            return ""
    own_looks = [look for facts in living for look in _list_own_looks(facts)]
    store_port = living[0].environment.get("MASTER_PORT", "") if living else ""
    if has_client_inside(own_looks, store_port) or list_unanswered_clients(own_looks, store_port):
        return ""
    if list_untaken_ports(own_looks, store_port):
        return ""
    if any(is_kept_from_work(look, own_looks) for look in own_looks):
        return ""
    found = [
        describe_listening(looks, facts.environment.get("MASTER_PORT", ""))
        for facts in living
        if (looks := _list_own_looks(facts))
    ]
    return found[0] if found and len(found) == len(living) and all(found) else ""


_NEAR = 3  # frames from where it sleeps: what is called further out is the job, not its handling
_FULL = re.compile(r"(?:anon_|fifo_)?pipe_write")  # where room in a pipe is waited for
_ASKS = (re.compile(r"(?:^|/)http/client\.py$"), frozenset(["begin", "getresponse"]))


def is_kept_from_work(look: Look, family: Sequence[Look]) -> bool:
    """Return whether a process of a server does not wait for its next piece of work, whoever else
    listens: it is stopped, waits for the lock on a file, for the other end of a pipe with a name,
    for room in a full pipe, for the answer to a request of its own, for a signal that only another
    process of the job could have a reason to send, or sleeps below an `except`.
    The turn to accept may be a lock on a file that another one of its `family` has.
    """
    task = main_kernel(look)
    call = task.syscall if task is not None else None
    if look.state in ("Z", "X", ""):
        return False
    if is_halted(look) or task is None or call is None or look.state == "R":
        return is_halted(look)
    if call.name in OPEN_CALLS or _FULL.fullmatch(task.wchan.partition(".")[0]):
        return task.state == "S" and bool(task.wchan)
    if call.name == "flock":
        takes_turns = {one.pid for one in family if waits_for_requests(one)}
        holders = {one.holder for one in look.locks if one.waiting}
        return not holders <= takes_turns
    return _tries_again(look) or _awaits_an_answer(look) or _awaits_a_word_by_signal(call)


_WORDS_BY_SIGNAL = frozenset([signal.SIGUSR1, signal.SIGUSR2, *range(34, 65)])  # the last: SIGRT*


def _awaits_a_word_by_signal(call: Syscall) -> bool:
    """Return whether a call waits without a limit for signals that mean what a program wants them
    to mean, and for none by which a server is told to end, to begin anew, or of a child.
    """
    return bool(call.signals) and call.timeout is None and {*call.signals} <= _WORDS_BY_SIGNAL


def _awaits_an_answer(look: Look) -> bool:
    main = look.main
    file, names = _ASKS
    return main is not None and any(
        file.search(frame.file) and frame.name.rpartition(".")[2] in names for frame in main.frames
    )


def _tries_again(look: Look) -> bool:
    """Return whether a process sleeps below an `except` of its own code: what it has asked for
    failed.
    """
    frames = look.main.frames if look.main is not None else ()
    own = [frame for frame in frames if not frame.native][:_NEAR]
    return is_asleep(look) and any(frame.handler for frame in own)


def find_kept_outside(snapshot: Snapshot, server: Collection[int]) -> RankId | None:
    """Return a rank for which another one waits in a collective, and which waits for what no
    process of its `server` (their pids) is to give: the answer of another program, a lock on a
    file, a pipe with a name. None: no rank shows that its server has a request.
    """
    found = snapshot.compare_ranks()
    missed = {rank for one in found.values() if one.waits_for_peers for rank in one.other_awaited}
    for rank in missed & {*found}:
        wait = found[rank].own_wait
        if not found[rank].waits_for_peers and wait is not None and _is_outside(wait, server):
            return rank
    return None


_LONG = 60.0  # seconds: a request that is held back on purpose is answered in less (long polls)


def have_all_asked(snapshot: Snapshot, servers: Iterable[Look]) -> bool:
    """Return whether each living rank waits for the answer of a server, at a port where that
    listens, and it does not wake for long: it has a request of each (aiohttp wakes once an hour).
    """
    ports = dict[int, set[str]]()
    for look in servers:
        call = look.kernel[0].syscall if look.kernel else None
        listens = {one.local.rpartition(":")[2] for one in look.sockets if one.state == "LISTEN"}
        sleeps = call is not None and (call.timeout is None or call.timeout > _LONG)
        ports[look.pid] = listens if sleeps else set()
    living = [facts.rank for facts in snapshot.ranks if not is_gone(facts)]
    waits = [snapshot.waits.get(rank) for rank in living]
    return bool(living) and all(
        wait is not None
        and wait.kind == "socket"
        and wait.what.rpartition(":")[2] in ports.get(wait.pid or 0, ())
        for wait in waits
    )


def _is_outside(wait: Wait, server: Collection[int]) -> bool:
    if wait.kind == "socket" and wait.pid is not None:
        return not wait.is_for_any and wait.pid not in server
    if wait.kind == "socket":
        peer = host_of(wait.detail.partition(" ")[0])
        return "ESTABLISHED" in wait.detail and peer != "" and not is_loopback(peer)
    return wait.kind in ("lock", "pipe") and wait.what.startswith("/") and wait.pid not in server


def _list_own_looks(facts: RankFacts) -> list[Look]:
    """Return the last look at a rank's process and at each that it has started: a server beside it
    may wait for requests while the rank waits for more than that.
    """
    families = (looks for looks in (facts.looks, *facts.children) if looks)
    return [looks[-1] for looks in families if looks[-1].pid not in facts.beside]


def describe_listening(looks: Iterable[Look], store_port: str = "") -> str:
    """Return in words where one of these processes listens, if its main thread waits for requests
    there; "" if none does. The job's own store, at `store_port`, counts for nothing.
    """
    for look in looks:
        listening = [
            one.local
            for one in look.sockets
            if one.state == "LISTEN" and not (store_port and one.local.endswith(f":{store_port}"))
        ]
        if look.ray is not None:  # at one port each driver and worker of Ray hears from others
            listening = listening[1:]
        if listening and waits_for_requests(look):
            return f"process {look.pid} ({look.name}) listens at {listening[0]}"
    return ""


def waits_for_requests(look: Look) -> bool:
    """Return whether the main thread of a process waits for a connection, or in the loop of a
    server; of which port is not asked. What serves multiprocessing itself (a fork server, which
    listens as long as the job runs) is none.
    """
    call = look.kernel[0].syscall if look.kernel else None
    if call is None or look.state in ("T", "t", "D") or call.name not in _SERVES:
        return False
    main = look.main
    frames = [frame for frame in (main.frames if main else ()) if not frame.native]
    if any("torch/distributed" in frame.file for frame in frames) or serves_multiprocessing(frames):
        return False
    if call.name in _ACCEPTS:
        return True
    named = [one.socket for one in call.descriptors if one.socket is not None]
    if any(one.state == "LISTEN" for one in named):
        return True
    inside = takewhile(lambda frame: any(one in frame.file for one in _LOOP_FILES), frames)
    return any(frame.name.rpartition(".")[2] in _LOOPS for frame in inside)


def _missing_peer(verdict: Verdict) -> str:
    """A rank that others wait for is gone, or was never started."""
    if not verdict.ranks.waiting or verdict.guessed:
        return ""
    for rank in verdict.ranks.culprit:
        if rank in verdict.ranks.dead:
            return f"rank {rank}, for which others wait, has ended"
        if rank not in verdict.ranks.never_started or verdict.may_start_more:
            continue
        if verdict.seconds.total > _ABSENT_AFTER:
            return f"rank {rank}, for which others wait, was never started"
    return ""


def _named_by_cause(verdict: Verdict, snapshot: Snapshot) -> str:
    cause = verdict.cause
    # A process that has no more to do for a rank may stand still for any reason.
    if cause is None or cause.process is not None:
        return ""
    if cause.level == "guess" and cause.id not in _SEEN_BY_FRAMES:
        return ""
    if cause.id in _OUT_OF_STEP and all_wait_for_peers(snapshot):
        return "all ranks wait in collectives that do not go together"
    return next((words for words, ids in _PROVING.items() if cause.id in ids), "")


def all_wait_for_peers(snapshot: Snapshot) -> bool:
    """Return whether each living rank that is not done waits for its peers: nobody else comes."""
    found = snapshot.compare_ranks()
    rest = [r for r in snapshot.ranks if not is_gone(r) and not r.finished]
    return bool(rest) and all(found[r.rank].waits_for_peers for r in rest)


def _ring(verdict: Verdict, graph: WaitGraph) -> str:
    named = {*verdict.ranks.culprit, *verdict.ranks.stuck}
    if any(ring.ranks & named for ring in graph.deadlocks):
        return "each waits for the next, and the last one for the first"
    return ""


def _waits_for_itself(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    """Both ends are a process's own, and it has no other thread that could write."""
    wait, named = verdict.waits_for, verdict.ranks.culprit[:1]
    if wait is None or wait.kind not in ("pipe", "itself") or "its own" not in wait.detail:
        return ""
    looks = [facts.looks[-1] for facts in ranks if facts.rank in named and facts.looks]
    alone = bool(looks) and all(len(look.kernel) == 1 for look in looks)
    return f"nobody else has the other end: {wait.detail}" if alone else ""


def _sleeps_too_long(verdict: Verdict, ranks: Sequence[RankFacts]) -> str:
    """Others wait for one whose sleep, as the kernel counts it down, lasts for longer than they do:
    a process group waits for 10 or 30 minutes (torch/distributed/constants.py), or what was set.
    """
    if not verdict.ranks.waiting:
        return ""
    for facts in ranks:
        if facts.rank in verdict.ranks.culprit and facts.looks and is_asleep(facts.looks[-1]):
            last = facts.looks[-1]
            left = read_time_left(last)
            # A server may keep its main thread asleep, and answer by another.
            serves = len(last.threads) != 1 or any(one.state == "LISTEN" for one in last.sockets)
            if left is not None and left > LONGEST_LIMIT and not serves:
                return f"rank {facts.rank} sleeps for {format_seconds(left)} more"
    return ""
