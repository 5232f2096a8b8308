"""What the ends of ranks make of a job."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.events import Ended
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.rank_state import NodeRanks
from hangbisect.base.verdict_facts import Ranks
from hangbisect.monitor.clocks import TimeLimits
from hangbisect.monitor.rank_exits import (
    Interruptions,
    find_job_end,
    infer_statuses,
    may_have_failed,
    may_server_tell,
    note_end,
    note_slow,
    was_started_again,
)
from hangbisect.monitor.verdict_review import VerdictReview
from hypothesis import given
from hypothesis import strategies as st

from .made_up import at_step, hello, say, told

DEADLINE = 60.0


def job(members: NodeRanks, **fields: Any) -> Any:
    """What the functions here use of a job."""
    notes: list[Any] = []
    made = {"members": members, "limits": TimeLimits({}), "slow_steps": {}, "notes": notes}
    made |= {"note": lambda one, event: notes.append(event), "changed": asyncio.Event()}
    made |= {"server": None, "is_ready": False}
    return SimpleNamespace(**(made | fields))


def left(
    members: NodeRanks, rank: int, status: int | None, at: float, finished: bool = False
) -> Any:
    """Have a rank leave."""
    one = members.by_rank[rank]
    one.left, one.left_at, one.status, one.finished = True, at, status, finished
    return one


def test_while_all_are_there_it_goes_on() -> None:
    assert find_job_end(job(told())) is None


def test_it_is_done_when_the_last_rank_has_finished() -> None:
    members = told()
    left(members, 0, 0, 1.0, finished=True)
    assert find_job_end(job(members)) is None
    left(members, 1, 0, 2.0, finished=True)
    assert find_job_end(job(members)) == "done"


def test_it_is_not_done_before_every_rank_of_the_node_has_come() -> None:
    members = told(world=1)
    members.expect(2, {0, 1})
    left(members, 0, 0, 1.0, finished=True)
    assert find_job_end(job(members)) is None


def test_a_goodbye_counts_before_the_process_has_ended() -> None:
    members = told((0, "bye", 1.0, {"status": 1, "error": "ValueError"}))
    assert find_job_end(job(members)) == "crash"


@pytest.mark.parametrize("status", [1, 70, -signal.SIGKILL, -signal.SIGSEGV])
def test_a_failure_is_a_crash(status: int) -> None:
    members = told()
    left(members, 1, status, 1.0)
    assert find_job_end(job(members)) == "crash"


def test_status_0_too_early_is_leaving_and_a_crash_only_if_all_do() -> None:
    members = told()
    left(members, 1, 0, 1.0)
    assert find_job_end(job(members)) == "left"
    left(members, 0, 0, 2.0)
    assert find_job_end(job(members)) == "crash"


def test_one_that_leaves_early_counts_though_others_have_finished() -> None:
    members = told()
    left(members, 0, 0, 1.0, finished=True)
    left(members, 1, 0, 2.0)
    assert find_job_end(job(members)) == "left"


@pytest.mark.parametrize("status", [-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 130])
def test_who_was_told_to_go_was_interrupted(status: int) -> None:
    members = told()
    left(members, 0, status, 1.0)
    assert find_job_end(job(members)) == "interrupted"


def test_the_first_end_counts_for_the_launcher_ends_the_others() -> None:
    members = told()
    left(members, 1, 1, 1.0)
    left(members, 0, -signal.SIGTERM, 2.0)
    assert find_job_end(job(members)) == "crash"


@given(
    st.lists(
        st.tuples(st.sampled_from([None, 0, 1, -9, -15]), st.floats(0, 9), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_a_job_is_done_only_if_every_rank_finished(
    ends: list[tuple[int | None, float, bool]],
) -> None:
    members = told(world=len(ends))
    for rank, (status, at, finished) in enumerate(ends):
        left(members, rank, status, at, finished)
    everyone = all(finished and status in (0, None) for status, _, finished in ends)
    assert (find_job_end(job(members)) == "done") == everyone


# ---- an attempt that torchrun starts again ----


def attempt(status: int | None, restarts: int = 1, interrupted: bool = False) -> Any:
    """An attempt of a script whose rank 1 left first, and whose rank 0 was told to end then."""
    members = told()
    left(members, 1, status, 1.0)
    left(members, 0, -signal.SIGTERM, 2.0)
    for one in members:
        one.max_restarts = restarts
    outer = SimpleNamespace(were_interrupted=lambda: interrupted)
    return job(members, outer=outer, runs_script=True, attempt=0)


def test_an_attempt_may_have_failed_where_nobody_knows_how_a_rank_of_it_ended() -> None:
    assert may_have_failed(attempt(None), "interrupted")
    assert may_have_failed(attempt(None), "done")
    assert not may_have_failed(attempt(None), "crash")
    assert not may_have_failed(attempt(0), "interrupted")
    assert not may_have_failed(attempt(None, restarts=0), "done")
    assert not may_have_failed(attempt(None, interrupted=True), "done")


@pytest.mark.parametrize("count", [0, 1])
def test_the_next_attempt_below_the_launcher_tells_that_this_one_failed(count: int) -> None:
    sleeps = "import time; time.sleep(600)"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeps!r}])"
    counted = {**os.environ, "TORCHELASTIC_RESTART_COUNT": str(count)}
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", starts], env=counted, start_new_session=True
    )
    launched = attempt(None)
    launched.place = {"launcher_pid": os.getpid()}
    try:
        assert asyncio.run(was_started_again(launched)) == (count > launched.attempt)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


# ---- real ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "status"), [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)]
)
def test_the_status_is_taken_from_the_zombie_that_the_launcher_has_not_reaped(
    program: str, status: int
) -> None:
    members = told()
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", f"import os; {program}"])
    members.by_rank[0].pid = child.pid
    end = time.monotonic() + DEADLINE
    while "Z" not in state_of(child.pid) and time.monotonic() < end:
        time.sleep(0.01)
    here = job(members)
    note_end(here, members.by_rank[0])
    child.wait()
    assert (members.by_rank[0].left, members.by_rank[0].status) == (True, status)
    assert here.notes == [Ended(status=status)]
    assert here.changed.is_set()


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_status_that_nobody_saw_stays_what_the_goodbye_said() -> None:
    members = told((0, "bye", 1.0, {"status": 5}))
    members.by_rank[0].pid = 2**22 + 1  # more than there can be
    note_end(job(members), members.by_rank[0])
    assert members.by_rank[0].status == 5


# ---- slow steps -------------------------------------------------------------------------------


def test_a_step_that_took_longer_than_its_deadline_is_listed_with_its_ranks() -> None:
    now = time.monotonic()
    members = at_step(3, at=now - 100.0)
    here = job(members)
    for rank in (1, 0):
        members.by_rank[rank].moving = "reads 41 MiB/s"
        note_slow(here, members.by_rank[rank])
    (slow,) = here.slow_steps.values()
    assert (slow.checkpoint, slow.name, slow.ranks) == (3, "wandb_logger", (0, 1))
    assert (slow.deadline, slow.moved) == (60.0, "reads 41 MiB/s")
    assert slow.seconds >= 100.0


def test_a_step_in_time_is_not_listed() -> None:
    here = job(at_step(3, at=time.monotonic()))
    note_slow(here, here.members.by_rank[0])
    assert here.slow_steps == {}


def test_a_status_that_torchrun_took_was_0_where_it_lets_the_others_go_on() -> None:
    """It reaps its ranks at once, and ends all the others after a failure (torch/distributed/
    elastic/agent/server/api.py, SimpleElasticAgent._invoke_run).
    """
    left = RankFacts(1, 1, 102, alive=False, left=True, left_at=100.0)
    stays = RankFacts(0, 0, 101)
    for launcher, now, ranks, status in (
        ("torchrun", 120.0, [stays, left], 0),
        ("torchrun", 102.0, [stays, left], None),  # it may not have noticed
        ("torchrun", 120.0, [replace(stays, alive=False, left=True), left], None),
        ("mpirun", 120.0, [stays, left], None),
        ("", 120.0, [stays, left], None),
        ("torchrun", 120.0, [stays, replace(left, status=-9)], -9),
    ):
        assert infer_statuses(ranks, launcher, now)[1].status == status, (launcher, now)


def of_script(world: int = 2) -> NodeRanks:
    """Return members that run a script of the user's own, once all have said hello."""
    members = NodeRanks(runs_script=True)
    for rank in range(world):
        say(members, rank, hello(rank, world))
    return members


@pytest.mark.parametrize("status", [1, -signal.SIGTERM, -signal.SIGKILL, None, 0])
def test_an_actor_that_ray_ends_has_not_failed(status: int | None) -> None:
    members = of_script()
    for rank in (0, 1):
        left(members, rank, status, 1.0 + rank).is_actor = True
    assert find_job_end(job(members)) == "done"


def test_ranks_of_unknown_status_that_ended_on_an_interruption_are_not_done() -> None:
    members = of_script()
    left(members, 0, None, 1.0)
    left(members, 1, 0, 1.0)
    for told_to_end, wanted in ((True, "interrupted"), (False, "done")):
        outer = SimpleNamespace(were_interrupted=lambda told=told_to_end: told)
        assert find_job_end(job(members, outer=outer)) == wanted


def test_an_actor_that_a_fault_ended_has() -> None:
    members = of_script()
    left(members, 0, -signal.SIGSEGV, 1.0).is_actor = True
    outer = SimpleNamespace(were_interrupted=lambda: False)
    assert find_job_end(job(members, outer=outer)) == "crash"


class Above:
    """What is above the ranks of a server, made up: whether it failed, and whether it lives."""

    answer_requests = True

    def __init__(self, has_failed: bool = False, is_alive: bool = False) -> None:
        self._has_failed, self._is_alive = has_failed, is_alive

    def find_failure(self) -> bool:
        return self._has_failed

    def is_one_alive(self) -> bool:
        return self._is_alive

    def __contains__(self, pid: object) -> bool:
        return False


def serving(status: int, at: float, server: Above, **fields: Any) -> Any:
    """A server both of whose ranks ended so, before it was ready."""
    members = of_script()
    for rank in (0, 1):
        left(members, rank, status, at).is_of_server = True
    told, asked = fields.pop("interrupted", False), fields.pop("asked", True)
    quiet_at = fields.pop("quiet_at", None)
    for one in members if quiet_at is not None else ():
        one.quiet, one.quiet_at = True, quiet_at
    outer = SimpleNamespace(were_interrupted=lambda: told, awaits_ready=asked)
    return job(members, server=server, outer=outer, **fields)


@pytest.mark.parametrize("status", [0, -signal.SIGTERM])
def test_ranks_that_end_with_their_server_have_failed_with_it(status: int) -> None:
    now = time.monotonic()
    failed = Above(has_failed=True)
    assert find_job_end(serving(status, now, failed)) == "crash"
    # It may tell of a failure for as long as it lives.
    alive = Above(is_alive=True)
    assert find_job_end(serving(status, now, alive)) is None
    assert may_server_tell(serving(status, now, alive))
    assert not may_server_tell(serving(status, now - 60.0, alive))
    wanted = "left" if status == 0 else "interrupted"
    assert find_job_end(serving(status, now - 60.0, alive)) == wanted
    # It was told to end, or was ready: then that is how a server ends.
    wanted = "done" if status == 0 else "interrupted"
    assert find_job_end(serving(status, now, failed, interrupted=True)) == wanted
    assert find_job_end(serving(status, now, failed, is_ready=True)) == wanted
    assert find_job_end(serving(status, now, Above())) == wanted


def test_a_server_whose_ranks_have_long_started_is_up_where_nobody_can_ask_it() -> None:
    now, failed = time.monotonic(), Above(has_failed=True)
    for status in (0, -signal.SIGKILL):
        assert find_job_end(serving(status, now, failed, asked=False, quiet_at=now - 5)) == "crash"
        assert find_job_end(serving(status, now, failed, asked=False, quiet_at=now - 50)) == "done"


def test_a_rank_of_a_server_whose_last_step_raised_has_failed_though_it_ended_well() -> None:
    members = of_script()
    step = {"step": "server_worker", "k": 1}
    begins = {"t": "begin", "at": 1.0, "depth": 0, "call": "WorkerProc", "title": "Worker loaded"}
    begins |= {"component": "model", "deadline": 60.0, "checkpoint": None, "phase": None}
    say(members, 1, {**begins, **step})
    say(members, 1, {"t": "end", "at": 2.0, **step, "failed": True, "error": "ValueError: no"})
    one = left(members, 1, 0, 3.0)
    assert one.last_error == "ValueError: no"
    one.status = -signal.SIGKILL
    assert one.last_error == "ValueError: no", "its engine has ended it"
    one.status = -signal.SIGSEGV
    assert one.last_error == "", "it ended by what it did later"
    one.status = 0
    one.left_at = 60.0  # long after: it went on
    assert one.last_error == ""
    one.left_at, one.is_of_server = 3.0, False
    assert one.last_error == ""
    one.status = 1
    assert one.last_error == "ValueError: no"


@pytest.mark.parametrize(
    ("status", "said", "outcome", "stays"),
    [
        (-signal.SIGKILL, False, "silent", True),
        (None, False, "hang", True),
        (None, True, "silent", False),  # it has come to its end by itself
        (0, False, "silent", False),
        (-signal.SIGSEGV, False, "silent", False),
        (1, False, "silent", False),
        (-signal.SIGKILL, False, "crash", False),
    ],
)
def test_a_rank_that_stood_still_and_was_ended_by_others_says_nothing_new(
    status: int | None, said: bool, outcome: str, stays: bool
) -> None:
    members = told()
    left(members, 0, status, 20.0).said_goodbye = said
    verdict = SimpleNamespace(outcome=outcome, ranks=Ranks(culprit=(0,), waiting=(1,)))
    judged: Any = job(members, verdict=verdict, closed_at=10.0, runs_script=True, was_ended=False)
    judged.find_members = set
    review = VerdictReview(judged, server=None, is_held=lambda: False)  # type: ignore[arg-type]  # none is asked
    assert review.was_put_to_an_end() is stays
    review.forget_silence("crash")
    assert (judged.verdict is None) is (outcome == "silent" and not stays)


def test_a_signal_that_a_server_sends_its_ranks_interrupts_nothing() -> None:
    above = Above()
    for server, by_all, wanted in ((None, False, True), (above, False, False), (above, True, True)):
        outer = SimpleNamespace(were_interrupted=lambda by_all=by_all: by_all)
        of = job(of_script(), server=server, outer=outer, place={"launcher_pid": 0})
        heard = SimpleNamespace(signalled={})
        interruptions = Interruptions(of, heard, lambda: None)  # type: ignore[arg-type]  # made up
        interruptions.note_pending_signal()
        assert interruptions.are_there() is wanted
