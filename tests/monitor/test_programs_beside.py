"""Programs that a command starts beside each other, each a job of its own, are ranks of one."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.process_facts import Descriptor, Kernel, Look, Socket, Syscall
from hangbisect.base.rank_facts import JobFacts
from hangbisect.base.rank_state import NodeRanks
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.monitor import programs_beside
from hangbisect.monitor.job_facts import make_rank_facts
from hangbisect.monitor.programs_beside import (
    ProgramsBeside,
    find_programs_beside,
    is_worth_waiting,
    stand_for_programs,
)

from .made_up import TABLE, hello, look, say

STALL = 4.0


@pytest.fixture(autouse=True)
def _without_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are made up have none, and their jobs no connection to ask them."""

    async def as_they_are(_job: Any, ranks: Any, _ended: str) -> Any:
        return ranks

    monkeypatch.setattr(programs_beside, "add_logs", as_they_are)


GONE = 4_100_000  # the first of pids that no process has (pid_max is 2**22)
PLACE = {"launcher": None, "joined": False}


class Made:
    """A job of which only so much is there."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def make_jobs(*commands: str, worlds: dict[int, tuple[int, int]] | None = None) -> list[Any]:
    """Return a job for each command, still for long; `worlds`: rank and world that one knows."""
    jobs: list[Any] = []
    for at, command in enumerate(commands):
        rank, world = (worlds or {}).get(at, (0, 1))
        members = NodeRanks(TABLE, runs_script=True)
        say(members, rank, hello(rank, world, pid=GONE + at))
        members.by_rank[rank].looks = [look(1.0, GONE + at), look(3.0, GONE + at)]
        members.by_rank[rank].moved_at = time.monotonic() - 10 * STALL
        job = Made(
            runs_script=True,
            place=PLACE,
            members=members,
            limits=SimpleNamespace(stall=STALL),
            logs=SimpleNamespace(read=lambda _: None),
            settings={"command": command.split()},
            stands_for={},
            beside_since=0.0,
            began=time.monotonic() - 20 * STALL,
        )
        jobs.append(job)
    for job in jobs:
        job.beside = lambda: [SimpleNamespace(job=one) for one in jobs]
    return jobs


def find(job: Any) -> ProgramsBeside | None:
    ranks = [make_rank_facts(member) for member in job.members]
    facts = JobFacts(
        ended="still",
        pipeline="",
        command=(),
        attempt=0,
        world_size=1,
        local_ranks=(0,),
        table=TABLE,
        now=0.0,
        started=0.0,
    )
    return asyncio.run(find_programs_beside(job, facts, Snapshot(ranks)))


def list_ranks(found: ProgramsBeside | None) -> list[tuple[object, int | None]]:
    assert found is not None
    return [(facts.rank, facts.pid) for facts in found.seen.ranks]


TRAINS = [f"python train.py --gpu {n} --port 29500" for n in (0, 2, 1)]


def test_who_makes_a_group_by_the_numbers_of_its_arguments_tells_those_of_all() -> None:
    jobs = make_jobs(*TRAINS, worlds={0: (0, 3), 1: (2, 3)})
    for job in jobs:
        found = find(job)
        assert list_ranks(found) == [(0, GONE), (1, GONE + 2), (2, GONE + 1)]
        assert found is not None
        assert (found.facts.world_size, found.facts.local_ranks) == (3, (0, 1, 2))
        assert (found.awaited, found.is_sure) == ("", True)
        assert len(found.others) == 2


@pytest.mark.parametrize("known", [(1, 3), (0, 4)])
def test_other_numbers_in_the_group_tell_nothing(known: tuple[int, int]) -> None:
    assert find(make_jobs(*TRAINS, worlds={0: known})[0]) is None


def test_runs_with_another_seed_each_stand_alone() -> None:
    assert find(make_jobs(*(f"python train.py --seed {n}" for n in range(3)))[0]) is None


def meet(one: Look, other: int) -> Look:
    end = Socket(7, "tcp", "127.0.0.1:5", "127.0.0.1:6", "ESTABLISHED", peer_pids=(other,))
    waits = Syscall(
        45, "recvfrom", (), descriptors=(Descriptor(4, "socket", "socket:[7]", socket=end),)
    )
    return replace(one, kernel=(Kernel(one.pid, "python", "S", "", syscall=waits),), sockets=(end,))


def test_runs_that_are_connected_are_ranks() -> None:
    jobs = make_jobs(*(f"python train.py {n} 3" for n in range(3)))
    assert find(jobs[0]) is None
    member = jobs[2].members.by_rank[0]
    member.looks = [meet(one, GONE) for one in member.looks]
    assert list_ranks(find(jobs[0])) == [(0, GONE), (1, GONE + 1), (2, GONE + 2)]


def test_nobody_is_judged_while_one_of_them_moves() -> None:
    jobs = make_jobs(*TRAINS, worlds={0: (0, 3)})
    jobs[1].members.by_rank[0].moved_at = time.monotonic()
    found = find(jobs[0])
    assert found is not None
    assert found.awaited == f"number 2 of 3 programs (PID {GONE + 1})"
    jobs[0].beside_since = time.monotonic() - 100 * STALL
    assert is_worth_waiting(jobs[0], found)
    assert not is_worth_waiting(jobs[1], find(jobs[1]) or found)


def test_where_only_a_flag_says_so_they_are_waited_for_not_for_ever() -> None:
    jobs = make_jobs(*(f"python worker.py --worker-id {n}" for n in range(2)))
    jobs[1].members.by_rank[0].moved_at = time.monotonic()
    found = find(jobs[0])
    assert found is not None
    assert not found.is_sure
    assert is_worth_waiting(jobs[0], found)
    jobs[0].beside_since = time.monotonic() - 100 * STALL
    assert not is_worth_waiting(jobs[0], found)


def test_one_that_was_looked_at_once_may_move() -> None:
    jobs = make_jobs(*TRAINS, worlds={0: (0, 3)})
    del jobs[2].members.by_rank[0].looks[0]
    found = find(jobs[0])
    assert found is not None
    assert found.awaited


def test_another_program_of_the_same_command_is_none_of_them() -> None:
    jobs = make_jobs(*TRAINS, "python serve.py --port 8000", worlds={0: (0, 3)})
    assert len(list_ranks(find(jobs[0]))) == 3
    assert find(jobs[3]) is None


def test_ranks_of_a_launcher_have_their_numbers() -> None:
    jobs = make_jobs(*TRAINS, worlds={0: (0, 3)})
    jobs[0].place = {**PLACE, "launcher": "torchrun"}
    assert find(jobs[0]) is None


def test_who_was_a_job_of_its_own_before_is_one_rank() -> None:
    """It said hello before it knew its number, and is in the job of its group now."""
    jobs = make_jobs(*TRAINS, TRAINS[1], worlds={0: (0, 3), 3: (2, 3)})
    jobs[3].members.by_rank[2].pid = GONE + 1
    for job in jobs:
        assert list_ranks(find(job)) == [(0, GONE), (1, GONE + 2), (2, GONE + 1)]


def test_any_of_its_own_members_speaks_for_all() -> None:
    jobs = make_jobs(*TRAINS, worlds={0: (0, 3)})
    found = find(jobs[1])
    assert found is not None
    stand_for_programs(jobs[1], found)
    assert jobs[1].stands_for == {0: 0, 1: 0, 2: 0}


def spawn(job: Any, *ranks: int, first: int) -> None:
    """Let a job have ranks of a world of four, which its program has started."""
    for rank in ranks:
        say(job.members, rank, hello(rank, 4, pid=GONE + first + rank))
        member = job.members.by_rank[rank]
        member.looks = [look(1.0, member.pid), look(3.0, member.pid)]
        member.moved_at = time.monotonic() - 10 * STALL


def test_ranks_that_two_programs_have_started_as_nodes_of_one_job_are_judged_together() -> None:
    jobs = make_jobs("python main.py --rank 0", "python main.py --rank 1")
    spawn(jobs[0], 0, 1, first=100)  # the first takes the number that its program had so far
    del jobs[1].members.by_rank[0]
    spawn(jobs[1], 2, 3, first=100)
    for job in jobs:
        found = find(job)
        assert list_ranks(found) == [(rank, GONE + 100 + rank) for rank in range(4)]
        assert found is not None
        assert found.is_sure


def test_two_jobs_that_have_the_same_ranks_are_two() -> None:
    jobs = make_jobs("python main.py --seed 7", "python main.py --seed 9")
    for at, job in enumerate(jobs):
        spawn(job, 0, 1, 2, 3, first=100 * (at + 1))
    assert find(jobs[0]) is None


def test_a_program_that_had_ended_before_another_one_began_is_none_beside_it() -> None:
    """`python part.py --rank 0; python part.py --rank 1`: one after the other."""
    jobs = make_jobs("python part.py --rank 0", "python part.py --rank 1")
    first = jobs[0].members.by_rank[0]
    first.left, first.left_at = True, jobs[1].began + STALL
    assert find(jobs[1]) is not None
    first.left_at = jobs[1].began - STALL
    assert find(jobs[1]) is None
