"""What looks say about each rank: it moves, waits for another, or hangs."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.identity import RankId
from hangbisect.base.process_facts import (
    Descriptor,
    FileLock,
    Frame,
    Kernel,
    Look,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Wait, WaitKind
from hangbisect.collect.looks import (
    RankClasses,
    classify_ranks,
    may_wait_for_another,
    waits_for_another,
)
from hangbisect.monitor.job_facts import make_rank_facts
from hypothesis import given
from hypothesis import strategies as st

from .made_up import facts, look, member

SOCKET = Wait("socket", "127.0.0.1:80")
COLLECTIVE = Wait("collective", "all_reduce")
SPIN = Wait("itself", "runs")


def settled(*ranks: RankFacts, **waits: Wait) -> RankClasses:
    """Settle ranks whose waits are given as r0=..., r1=...."""
    return classify_ranks(ranks, {int(name[1:]): wait for name, wait in waits.items()})


def of(*ranks: int) -> frozenset[int]:
    return frozenset(ranks)


def test_a_rank_that_waits_for_another_never_hangs_while_that_one_moves() -> None:
    found = settled(facts(0), facts(1, moved="reads 41 MiB/s"), r0=COLLECTIVE)
    assert found.hung == of()
    assert (found.moving, found.waiting) == (of(1), of(0))


def test_nor_while_another_computes() -> None:
    found = settled(facts(0), facts(1, busy=True), r0=COLLECTIVE, r1=SPIN)
    assert found.hung == of()
    assert (found.busy, found.waiting) == (of(1), of(0))


def test_one_that_waits_for_nobody_hangs_whoever_else_moves() -> None:
    found = settled(facts(0), facts(1, moved="reads 41 MiB/s"), r0=SOCKET)
    assert found.hung == of(0)


def test_where_all_stand_still_the_job_hangs_though_each_waits_for_another() -> None:
    found = settled(facts(0), facts(1), r0=COLLECTIVE, r1=COLLECTIVE)
    assert found.hung == of(0, 1)


def test_one_that_spins_in_a_collective_waits_for_the_others() -> None:
    found = settled(facts(0, busy=True), facts(1, moved="new code"), r0=COLLECTIVE)
    assert found.hung == of()
    assert (found.busy, found.waiting) == (of(), of(0))


def test_where_all_spin_in_a_collective_the_job_hangs() -> None:
    found = settled(facts(0, busy=True), facts(1, busy=True), r0=COLLECTIVE, r1=COLLECTIVE)
    assert found.hung == of(0, 1)
    assert found.busy == of()


def test_a_rank_in_our_barrier_only_waits_whatever_its_looks_show() -> None:
    found = settled(facts(0, held=True, moved="polls"), facts(1), r0=SOCKET, r1=SOCKET)
    assert (found.waiting, found.moving, found.hung) == (of(0), of(), of(1))


def test_a_rank_that_is_gone_is_in_none_of_them() -> None:
    found = settled(facts(0, alive=False, left=True), facts(1), r1=SOCKET)
    assert (found.moving, found.busy, found.waiting, found.hung) == (of(), of(), of(), of(1))


def test_a_wait_for_what_another_rank_has_is_one_for_that_rank() -> None:
    lock = Wait("lock", "/tmp/a.lock", pid=101, rank=1)
    assert waits_for_another(lock, rank=0)
    assert not waits_for_another(lock, rank=1)
    assert not waits_for_another(None, rank=0)


# ---- ranks of which one cannot tell ------------------------------------------------------------

ASLEEP = Wait("sleep", "clock_nanosleep")


def asleep(*left: float, call: str = "clock_nanosleep") -> tuple[Look, ...]:
    """Looks, a second apart, at a process that sleeps for so much longer."""
    return tuple(
        replace(look(at), kernel=(Kernel(1, "", "S", "", Syscall(0, call, (), timeout=seconds)),))
        for at, seconds in enumerate(left)
    )


def stands_in(line: int) -> tuple[Look, ...]:
    """A look at one that is in this line of its own code."""
    frames = (Frame("<module>", "/home/ada/train.py", line),)
    one = look(1.0)
    return (replace(one, threads=(Thread(one.pid, "MainThread", True, True, frames),)),)


def test_who_spins_where_another_one_is_known_to_wait_for_its_peers_waits_as_well() -> None:
    """Native frames, which tell it, are taken of two ranks at the most."""
    ranks = [facts(n, busy=True, looks=stands_in(line)) for n, line in enumerate((8, 8, 9))]
    found = settled(*ranks, facts(3), r0=COLLECTIVE, r1=SPIN, r2=SPIN, r3=SOCKET)
    assert (found.busy, found.waiting, found.hung) == (of(2), of(0, 1), of(3))
    found = settled(*ranks[:2], facts(3), r0=COLLECTIVE, r1=SPIN, r3=SOCKET)
    assert (found.busy, found.hung) == (of(), of(0, 1, 3))


def test_who_spins_in_a_wait_for_a_gpu_hangs_only_where_nobody_goes_on() -> None:
    """As one that sleeps in it, once its step is late."""
    ranks = [facts(n, busy=True, looks=stands_in(line)) for n, line in enumerate((8, 8, 9))]
    waits: dict[RankId, Wait | None] = dict.fromkeys(range(3), SPIN)
    found = classify_ranks(ranks, waits, spinning={0})
    assert (found.busy, found.waiting, found.hung) == (of(2), of(0, 1), of())
    found = classify_ranks(ranks[:2], waits, spinning={0})
    assert (found.busy, found.hung) == (of(), of(0, 1))
    assert classify_ranks(ranks, waits).busy == of(0, 1, 2)


def test_one_that_sleeps_again_and_again_may_wait_for_one_that_moves() -> None:
    polls = facts(0, looks=asleep(0.3, 0.2, 0.4))
    assert settled(polls, facts(1, moved="reads 41 MiB/s"), r0=ASLEEP).waiting == of(0)
    assert settled(polls, facts(1), r0=ASLEEP, r1=SOCKET).hung == of(0, 1)
    assert settled(polls, facts(1, held=True), r0=ASLEEP).hung == of(0)


def test_where_others_only_burn_cpu_that_lasts_for_a_while() -> None:
    polls, spins = facts(0, looks=asleep(0.3, 0.2, 0.4)), facts(1, busy=True)
    waits: dict[RankId, Wait | None] = {0: ASLEEP, 1: SPIN}
    assert classify_ranks([polls, spins], waits).hung == of()
    assert classify_ranks([polls, spins], waits, had_time={0}).hung == of(0)
    assert classify_ranks([polls, facts(1, moved="reads")], waits, had_time={0}).hung == of()


def test_one_that_sleeps_for_long_hangs_whoever_moves() -> None:
    sleeps = facts(0, looks=asleep(900.0, 899.0, 898.0))
    assert settled(sleeps, facts(1, moved="reads 41 MiB/s"), r0=ASLEEP).hung == of(0)


def test_one_whose_sleep_ends_soon_does_not_hang_nor_who_waits_for_it() -> None:
    sleeps, meets = facts(0, looks=asleep(18.0, 17.0, 16.0)), facts(1)
    waits: dict[RankId, Wait | None] = {0: ASLEEP, 1: COLLECTIVE}
    found = classify_ranks([sleeps, meets], waits, soon=60.0)
    assert (found.hung, found.waiting) == (of(), of(0, 1))
    assert classify_ranks([sleeps, meets], waits, soon=5.0).hung == of(0, 1)
    polls = facts(0, looks=asleep(0.3, 0.2, 0.4))
    assert classify_ranks([polls, meets], waits, soon=60.0).hung == of(0, 1)


def test_who_waits_for_a_child_whose_sleep_ends_soon_does_not_hang() -> None:
    child = tuple(replace(one, pid=4711) for one in asleep(18.0, 17.0, 16.0))
    waits: dict[RankId, Wait | None] = {0: Wait("process", "sleep", pid=4711)}
    shell = replace(facts(0, looks=asleep(1.0, 1.0, call="wait4")), children=(child,))
    assert classify_ranks([shell], waits, soon=60.0).hung == of()
    assert classify_ranks([shell], waits, soon=5.0).hung == of(0)
    assert classify_ranks([replace(shell, children=())], waits, soon=60.0).hung == of(0)
    # The program `sleep` shows its whole length at each look.
    whole = replace(shell, children=(tuple(replace(one, pid=4711) for one in asleep(7.0, 7.0)),))
    assert classify_ranks([whole], waits, soon=60.0).hung == of()
    polls = tuple(replace(one, pid=4711) for one in asleep(0.5, 0.5, 0.5))
    assert classify_ranks([replace(shell, children=(polls,))], waits, soon=60.0).hung == of(0)


def test_a_condition_that_is_asked_for_again_and_again_is_such_a_sleep() -> None:
    asks = facts(0, looks=asleep(0.3, 0.9, call="futex"))
    futex = Wait("futex", "Condition.wait")
    assert may_wait_for_another(asks, futex)
    assert not may_wait_for_another(facts(0, looks=asleep(0.3, 0.9, call="poll")), ASLEEP)


def test_so_may_one_at_a_message_queue_where_nobody_is_connected_yet() -> None:
    """The server that it waits for may be another rank, which still loads its model."""
    waits = Wait("socket", "nobody serves ipc:///q", what="ipc:///q")
    events = Descriptor(8, "anon", "anon_inode:[eventfd]")
    main = Kernel(100, "python", "S", "", Syscall(7, "poll", (0,), 5.0, descriptors=(events,)))
    queue = Kernel(901, "ZMQbg/IO/0", "S", "", Syscall(232, "epoll_wait", (7,), 0.1))
    asks = facts(0, looks=(replace(look(1.0), kernel=(main, queue)),))
    loads = facts(1, moved="reads 41 MiB/s")
    assert settled(asks, loads, r0=waits).hung == of()
    assert settled(asks, facts(1), r0=waits, r1=SOCKET).hung == of(0, 1)
    # Of several peers any may be meant; a peer outside of the job, alone, is no other rank.
    several = Wait("socket", "/q", pid=9, what="/q", others=(101,))
    assert settled(asks, loads, r0=several).hung == of()
    assert settled(asks, loads, r0=replace(several, others=())).hung == of(0)


def test_so_may_one_that_asks_for_a_lock_of_which_nobody_knows_who_has_it() -> None:
    left_over = FileLock("/c/x.lock", 5, None)
    stale = facts(0, looks=(replace(look(1.0), stale_locks=(left_over,)),))
    assert may_wait_for_another(facts(0), Wait("lock", "a lock file"))
    assert not may_wait_for_another(stale, Wait("lock", "a lock file"))
    assert not may_wait_for_another(facts(0), Wait("lock", "/x", pid=9, what="/x"))


# ---- whatever there is ------------------------------------------------------------------------

_KINDS: list[WaitKind] = ["rank", "collective", "store", "socket", "sleep", "itself", "unknown"]
_waits = st.none() | st.builds(
    Wait, st.sampled_from(_KINDS), st.just(""), rank=st.none() | st.integers(0, 3)
)


def _facts_of(rank: int) -> st.SearchStrategy[RankFacts]:
    return st.builds(
        facts,
        st.just(rank),
        held=st.booleans(),
        awaits=st.sampled_from([(), (0,)]),
        alive=st.booleans(),
        moved=st.sampled_from(["", "reads 41 MiB/s"]),
        busy=st.booleans(),
    )


_jobs = st.integers(1, 4).flatmap(
    lambda size: st.tuples(
        st.tuples(*(_facts_of(rank) for rank in range(size))),
        st.tuples(*(_waits for _ in range(size))),
    )
)
_Job = tuple[tuple[RankFacts, ...], tuple[Wait | None, ...]]


@given(_jobs)
def test_a_rank_that_is_held_never_hangs(job: _Job) -> None:
    ranks, waits = job
    found = classify_ranks(ranks, dict(enumerate(waits)))
    assert not found.hung & {r.rank for r in ranks if r.held or r.awaits}


@given(_jobs)
def test_a_rank_that_waits_for_another_hangs_only_if_nobody_goes_on(job: _Job) -> None:
    ranks, waits = job
    found = classify_ranks(ranks, dict(enumerate(waits)))
    if found.moving | found.busy:
        assert not [
            r for r, wait in enumerate(waits) if r in found.hung and waits_for_another(wait, r)
        ]


@given(_jobs)
def test_every_living_rank_is_in_one_of_them_and_no_dead_one_hangs(job: _Job) -> None:
    ranks, waits = job
    found = classify_ranks(ranks, dict(enumerate(waits)))
    parts = [found.moving, found.busy, found.waiting, found.hung]
    everyone = [rank for part in parts for rank in part]
    assert len(everyone) == len(set(everyone))
    assert {r.rank for r in ranks if r.alive} <= set(everyone)
    assert not found.hung & {r.rank for r in ranks if not r.alive}


def test_a_member_becomes_facts_as_it_is() -> None:
    made = make_rank_facts(
        member(1, reached=3, held_at=3, announced="wandb.init", phase="setup"), "reads"
    )
    assert (made.rank, made.reached, made.held, made.announced) == (1, 3, True, "wandb.init")
    assert (made.phase, made.moved, made.alive) == ("setup", "reads", True)
