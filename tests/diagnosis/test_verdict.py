"""Who is blamed, where, and for what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.identity import ProcessId
from hangbisect.base.process_facts import Descriptor, FileLock, Look, Socket, Thread
from hangbisect.base.rank_facts import Ended, Gpu, MachineFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.verdict import judge_job

from .made_up import (
    ALL_REDUCE,
    GROUP,
    RECV,
    SLEEP,
    TABLE,
    WANDB,
    gone,
    held,
    job,
    look,
    rank,
    silent_peer,
    wandb_core,
)


def kind(verdict: Verdict) -> str | None:
    return verdict.waits_for.kind if verdict.waits_for else None


def test_a_rank_that_waits_in_our_barrier_is_never_the_culprit() -> None:
    verdict = judge_job(job(), [held(0), rank(1, RECV)])
    assert verdict.outcome == "hang"
    assert verdict.ranks.culprit == verdict.ranks.stuck == (1,)
    assert verdict.ranks.waiting == (0,)
    assert verdict.checkpoint is not None
    assert verdict.checkpoint.number == 9


def test_rank_0_is_blamed_when_it_is_the_stuck_one() -> None:
    verdict = judge_job(job(), [rank(0, RECV), held(1)])
    assert verdict.ranks.culprit == (0,)
    assert kind(verdict) == "socket"


@pytest.mark.parametrize("stuck", [(3,), (0, 1, 2, 3, 4, 5, 6), (0,), (2, 5)])
def test_of_eight_ranks_those_that_are_stuck_are_blamed_however_many(
    stuck: tuple[int, ...],
) -> None:
    ranks = [rank(r, RECV) if r in stuck else held(r) for r in range(8)]
    verdict = judge_job(job(world=8), ranks)
    assert verdict.ranks.culprit == verdict.ranks.stuck == stuck
    assert verdict.ranks.waiting == tuple(r for r in range(8) if r not in stuck)


@pytest.mark.parametrize("sleeper", [0, 4, 7])
def test_seven_ranks_in_a_collective_are_not_blamed_for_the_one_outside(sleeper: int) -> None:
    ranks = [rank(r, SLEEP if r == sleeper else ALL_REDUCE, reached=11) for r in range(8)]
    verdict = judge_job(job(world=8), ranks)
    assert verdict.ranks.culprit == (sleeper,)
    assert len(verdict.ranks.waiting) == 7
    assert kind(verdict) == "sleep"


def test_a_collective_that_all_ranks_are_in_blames_all_of_them() -> None:
    verdict = judge_job(job(), [rank(r, ALL_REDUCE, reached=11) for r in range(2)])
    assert verdict.ranks.culprit == (0, 1)
    assert verdict.ranks.waiting == ()
    assert kind(verdict) == "collective"
    assert verdict.call == "torch.distributed.all_reduce"
    assert verdict.component == "strategy"


def test_ranks_of_another_node_are_neither_blamed_nor_missed() -> None:
    facts = job(world=16, local_ranks=(0, 1))
    verdict = judge_job(facts, [rank(r, ALL_REDUCE, reached=11) for r in range(2)])
    assert verdict.ranks.culprit == verdict.ranks.never_started == ()
    assert verdict.ranks.waiting == (0, 1)
    assert kind(verdict) == "rank"
    assert verdict.waits_for is not None
    assert "ranks of other nodes, which this watch does not see" in verdict.waits_for.detail
    assert verdict.cause is None


@pytest.mark.parametrize(("call", "state"), [("recvfrom", "ESTABLISHED"), ("connect", "SYN_SENT")])
def test_who_waits_for_the_node_of_rank_0_that_nobody_sees_is_not_to_blame(
    call: str, state: str
) -> None:
    """A protocol of the job's own: rank 0 hands out the shards, and its node has not come."""
    asks = look("shards data.py:7", call=call, descriptors=(silent_peer("10.0.0.9:7000", state),))
    environment = {"MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "29500"}
    there = job(world=4, local_ranks=(2, 3))
    ranks = [rank(r, asks, reached=11, environment=environment) for r in (2, 3)]
    verdict = judge_job(there, ranks)
    assert verdict.ranks.culprit == ()
    assert verdict.ranks.waiting == (2, 3)
    # Another host is an outsider's; and where rank 0 is here, it is not of another node.
    server = {**environment, "MASTER_ADDR": "10.0.0.8"}
    ranks = [replace(one, environment=server) for one in ranks]
    assert judge_job(there, ranks).ranks.culprit == (2, 3)
    here = job(world=4, local_ranks=(0, 1))
    ranks = [rank(r, asks, reached=11, environment=environment) for r in (0, 1)]
    assert judge_job(here, ranks).ranks.culprit == (0, 1)


def test_a_name_of_the_node_of_rank_0_is_known_by_its_addresses() -> None:
    asks = look("shards data.py:7", call="recvfrom", descriptors=(silent_peer("10.0.0.9:7000"),))
    there = job(world=4, local_ranks=(2,), pipeline="", master_addresses=("10.0.0.9",))
    environment = {"MASTER_ADDR": "n01", "MASTER_PORT": "29500"}
    ranks = [rank(2, asks, reached=11, environment=environment)]
    verdict = judge_job(there, ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((), (2,))
    elsewhere = replace(there, master_addresses=("10.0.0.8",))
    assert judge_job(elsewhere, ranks).ranks.culprit == (2,)


def test_whoever_came_to_the_port_of_a_rank_may_be_a_rank_that_nobody_sees() -> None:
    """A protocol of the job's own: a node went down after its rank had connected to rank 0."""
    door = Socket(8, "tcp", "0.0.0.0:5", state="LISTEN")
    hears = look(
        *("recv star.py:12", "main star.py:30"),
        call="recvfrom",
        descriptors=(silent_peer("10.0.0.4:57262"),),
        sockets=(door,),
    )
    there = job(world=2, local_ranks=(0,), pipeline="")
    verdict = judge_job(there, [rank(0, hears)])
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((), (0,))
    # Where it is the rank that came, the other end is a service, for all that is known; where all
    # ranks are here it is nobody of the job.
    calls = replace(hears, sockets=(replace(door, local="0.0.0.0:6"),))
    assert judge_job(there, [rank(0, calls)]).ranks.culprit == (0,)
    assert judge_job(job(world=1, pipeline=""), [rank(0, hears)]).ranks.culprit == (0,)


def test_where_the_other_end_of_a_connection_was_not_read_it_may_be_a_rank_that_nobody_sees() -> (
    None
):
    """The table of sockets did not come in time, on a machine that has much else to do."""
    unread = Descriptor(6, "socket", "socket:[13828981]")
    waits = look("recv star.py:12", call="recvfrom", descriptors=(unread,))
    ranks = [rank(r, waits) for r in (0, 1)]
    there = job(world=4, local_ranks=(0, 1), pipeline="")
    verdict = judge_job(there, ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((), (0, 1))
    # Who hangs otherwise is to blame still; and where all ranks are here, one of them is.
    assert judge_job(there, [rank(0, SLEEP), ranks[1]]).ranks.culprit == (0,)
    assert judge_job(job(pipeline=""), ranks).ranks.culprit == (0, 1)


def accepts(at: str) -> Look:
    door = Socket(8, "tcp", at, state="LISTEN")
    descriptor = Descriptor(5, "socket", "socket:[8]", socket=door)
    return look(
        "accept STD/socket.py:295", "main star.py:9", call="accept4", descriptors=(descriptor,)
    )


def test_who_hears_who_comes_waits_for_ranks_of_a_node_that_nobody_sees() -> None:
    """A protocol of the job's own: rank 0 serves, and one node of three has not come."""
    there = job(world=3, local_ranks=(0, 1), pipeline="")
    others = look(
        "readline star.py:12",
        call="recvfrom",
        descriptors=(silent_peer("10.0.0.1:9200", remote=ProcessId("n01", 100)),),
    )
    ranks = [rank(0, accepts("0.0.0.0:9200")), replace(rank(1, others), host="n02")]
    verdict = judge_job(there, ranks)
    assert verdict.ranks.culprit == ()
    assert 0 in verdict.ranks.waiting
    assert verdict.cause is not None
    assert verdict.cause.id == "other-node-missing"
    assert "2 ranks of 2 nodes are there, of 3" in verdict.cause.matched[0]
    # All ranks are here, or nobody on another machine can connect: then it is to blame.
    assert judge_job(job(world=2, pipeline=""), ranks).ranks.culprit == (0,)
    ranks[0] = rank(0, accepts("127.0.0.1:9200"))
    assert judge_job(there, ranks).ranks.culprit == (0,)


def test_who_asks_the_store_for_a_key_may_wait_for_a_rank_of_a_node_that_nobody_sees() -> None:
    asks = look(
        "c10d::TCPStore::doWait libtorch_cpu.so:0",
        "all_there steps.py:14",
        "<module> steps.py:30",
        call="poll",
        descriptors=(silent_peer("10.0.0.1:9230"),),
    )
    asks = replace(asks, threads=tuple(map(_with_native_frame, asks.threads)))
    waiting = [rank(0, asks)]
    verdict = judge_job(job(world=2, local_ranks=(0,), pipeline=""), waiting)
    assert verdict.ranks.culprit == ()
    assert verdict.ranks.waiting == (0,)
    assert verdict.cause is not None
    assert verdict.cause.id == "store-key-missing"


def _with_native_frame(thread: Thread) -> Thread:
    first, *others = thread.frames
    return replace(thread, frames=(replace(first, native=True), *others))


@pytest.mark.parametrize("counted", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_a_world_size_exported_by_hand_before_srun_or_mpirun_names_no_rank(counted: str) -> None:
    environment = {"WORLD_SIZE": "8", counted: "2"}
    ranks = [rank(0, SLEEP), held(1)]
    verdict = judge_job(job(), [replace(facts, environment=environment) for facts in ranks])
    assert verdict.ranks.culprit == (0,)
    assert verdict.ranks.never_started == ()


def test_a_world_size_larger_than_the_job_names_the_rank_that_nobody_started() -> None:
    ranks = [rank(r, GROUP, reached=11, environment={"WORLD_SIZE": "3"}) for r in range(2)]
    verdict = judge_job(job(), ranks)
    assert verdict.ranks.culprit == verdict.ranks.never_started == (2,)
    assert verdict.ranks.waiting == (0, 1)
    assert kind(verdict) == "absent_rank"
    assert verdict.component == "strategy"
    assert verdict.call == "torch.distributed.init_process_group"


def test_a_group_that_a_lone_rank_waits_for_lacks_a_rank() -> None:
    verdict = judge_job(job(world=1), [rank(0, GROUP, reached=11)])
    assert kind(verdict) == "absent_rank"
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0,)


def test_the_wait_of_wandb_goes_to_its_child_and_from_there_to_the_server() -> None:
    verdict = judge_job(job(), [rank(0, WANDB, WANDB, children=(wandb_core(0),)), held(1)])
    assert verdict.call == "wandb.init"
    assert verdict.component == "wandb"
    assert verdict.frame == "Condition.wait (threading.py:327)"
    assert verdict.waits_for is not None
    assert verdict.waits_for.kind == "process"
    assert (verdict.waits_for.pid, verdict.waits_for.process) == (4899, "wandb-core")
    assert verdict.waits_for.detail == "127.0.0.1:18080 ESTABLISHED"
    assert verdict.try_[0].value == "offline"
    assert verdict.try_[0].command.endswith("-m bisect --wandb offline")


def test_a_file_lock_that_another_rank_has_makes_that_rank_the_culprit() -> None:
    flock = look("step train.py:5", call="flock", locks=(FileLock("/x.lock", 5, 101, "python"),))
    verdict = judge_job(job(), [rank(0, flock), rank(1, RECV)])
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0,)


def test_a_polled_lock_file_that_a_child_of_another_rank_has_makes_that_rank_the_culprit() -> None:
    poller = look(
        "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177",
        "BaseFileLock.acquire SP/filelock/_api.py:1037",
        "step train.py:5",
        call="clock_nanosleep",
    )
    child = look("f train.py:1", pid=555, ppid=101, holds=(FileLock("/hub/x.lock", 5, 555),))
    verdict = judge_job(job(), [rank(0, poller), rank(1, RECV, children=((child,),))])
    assert verdict.ranks.culprit == (1,)


def test_a_rank_that_meets_the_others_with_their_lock_in_its_hand_is_in_a_ring_with_them() -> None:
    """Rank 2 has the lock that ranks 0 and 1 want before they come to the barrier it is in."""
    lock = FileLock("/x.lock", 5, 102, "python")
    wants = look("step train.py:5", "main train.py:9", call="flock", locks=(lock,))
    meets = look(
        "barrier SP/torch/distributed/distributed_c10d.py:5356", "main train.py:7", holds=(lock,)
    )
    verdict = judge_job(job(world=3), [rank(0, wants), rank(1, wants), rank(2, meets)])
    assert verdict.ranks.culprit in ((2,), (0, 1, 2))
    assert verdict.cause is not None
    assert verdict.cause.id in ("deadlock", "file-lock-held")


def test_a_lock_that_a_stranger_has_blames_the_ranks_that_wait_for_it() -> None:
    lock = FileLock("/x.lock", 5, 999, "rsync")
    verdict = judge_job(
        job(), [rank(r, look("step train.py:5", call="flock", locks=(lock,))) for r in range(2)]
    )
    assert verdict.ranks.culprit == (0, 1)
    assert verdict.waits_for is not None
    assert (verdict.waits_for.kind, verdict.waits_for.pid) == ("lock", 999)


def test_a_rank_that_said_for_whom_it_waits_is_waiting() -> None:
    verdict = judge_job(job(), [rank(0, RECV), rank(1, RECV, awaits=(0,))])
    assert verdict.ranks.culprit == (0,)
    assert verdict.ranks.waiting == (1,)


def test_the_rank_that_came_least_far_is_blamed_of_two_that_are_stuck() -> None:
    verdict = judge_job(job(), [rank(0, RECV, reached=11), rank(1, RECV, reached=8)])
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.stuck == (0, 1)


def test_phases_count_as_progress() -> None:
    ranks = [
        rank(0, SLEEP, reached=11, phase="first_batch"),
        rank(1, SLEEP, reached=11, phase="setup"),
    ]
    verdict = judge_job(job(), ranks)
    assert verdict.ranks.culprit == (1,)
    assert verdict.component == "data"
    assert verdict.checkpoint is not None
    assert verdict.checkpoint.phase == "setup"


def test_a_rank_that_left_with_status_0_while_others_wait_is_a_hang_and_its_fault() -> None:
    verdict = judge_job(job("left"), [rank(0, GROUP, reached=11), gone(1, 0, reached=3)])
    assert verdict.outcome == "hang"
    assert verdict.ranks.culprit == verdict.ranks.dead == (1,)
    assert verdict.ranks.waiting == (0,)
    assert verdict.ranks.stuck == ()
    assert (verdict.waits_for, verdict.call, verdict.frame) == (None, None, None)
    assert verdict.checkpoint is not None
    assert verdict.checkpoint.number == 4


def test_a_rank_without_a_process_never_started_and_the_checkpoint_is_the_launchers() -> None:
    verdict = judge_job(job(), [held(0, 1)])
    assert verdict.ranks.culprit == verdict.ranks.never_started == (1,)
    assert verdict.ranks.waiting == (0,)
    assert verdict.checkpoint is not None
    assert verdict.checkpoint.number == 0
    assert verdict.component == "launcher"


def test_a_process_that_never_said_hello_is_stuck_at_checkpoint_1() -> None:
    silent = rank(1, look(call="read", wchan="folio_wait", rung="proc"), reached=0)
    verdict = judge_job(job(), [held(0, 1), replace(silent, never_started=True)])
    assert verdict.ranks.culprit == verdict.ranks.never_started == verdict.ranks.stuck == (1,)
    assert verdict.checkpoint is not None
    assert verdict.checkpoint.number == 1
    assert verdict.seen_by == "proc"


def test_a_crash_blames_the_rank_that_raised_and_not_the_one_the_launcher_ended() -> None:
    ranks = [gone(0, -15), gone(1, 1, "ValueError: no")]
    verdict = judge_job(job("crash"), ranks)
    assert verdict.outcome == "crash"
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.dead == (0, 1)


def test_a_crash_blames_the_rank_that_was_killed_first() -> None:
    lost = "RuntimeError: Connection closed by peer [127.0.0.1]:3"
    ranks = [gone(0, 1, lost, left_at=11.0), gone(1, -9, left_at=10.0)]
    assert judge_job(job("crash"), ranks).ranks.culprit == (1,)


def test_a_launcher_that_kills_the_others_after_an_exception_is_not_the_cause() -> None:
    ranks = [gone(0, -9, left_at=40.0), gone(1, 1, "ValueError: no", left_at=10.0)]
    assert judge_job(job("crash"), ranks).ranks.culprit == (1,)


def test_where_others_failed_for_want_of_a_peer_the_one_that_left_is_blamed() -> None:
    lost = "RuntimeError: Connection closed by peer [127.0.0.1]:5000"
    ranks = [gone(0, 1, lost, left_at=9.0), gone(1, 0, left_at=5.0)]
    assert judge_job(job("crash"), ranks).ranks.culprit == (1,)
    assert judge_job(job("crash"), [gone(0, 1, "ValueError"), gone(1, 0)]).ranks.culprit == (0,)


def test_all_ranks_leaving_early_is_a_crash_of_all() -> None:
    assert judge_job(job("crash"), [gone(0, 0), gone(1, 0)]).ranks.culprit == (0, 1)


def test_an_interrupted_job_whose_ranks_were_at_work_accuses_nobody() -> None:
    works = look("forward model.py:4", call="", state="R")
    verdict = judge_job(job("interrupted"), [rank(0, works), rank(1, works)])
    assert verdict.outcome == "interrupted"
    assert verdict.ranks.culprit == verdict.ranks.stuck == ()
    assert verdict.where == ()


def test_an_interrupted_job_still_says_who_waited_for_what() -> None:
    verdict = judge_job(job("interrupted"), [held(0), rank(1, RECV)])
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0,)
    assert kind(verdict) == "socket"


def test_slow_blames_the_furthest_behind_of_those_that_go_on() -> None:
    ranks = [held(0), rank(1, RECV, moved="reads x at 4 MiB/s")]
    verdict = judge_job(job("limit"), ranks)
    assert verdict.outcome == "slow"
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.stuck == ()


def test_a_rank_that_moves_is_not_blamed_for_one_that_stands_still() -> None:
    ranks = [rank(0, RECV, moved="reads"), rank(1, SLEEP)]
    assert judge_job(job(), ranks).ranks.culprit == (1,)


def test_a_job_that_ended_well_has_no_checkpoint_and_nobody_to_blame() -> None:
    ranks = [gone(r, 0, reached=12, finished=True) for r in range(2)]
    verdict = judge_job(job("done"), ranks)
    assert verdict.outcome == "ok"
    assert (verdict.checkpoint, verdict.component, verdict.waits_for) == (None, None, None)
    assert not any(vars(verdict.ranks).values())


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (look("step train.py:5", call="", state="T"), "stopped"),
        (look("step train.py:5", call="", state="t", traced_by=77), "stopped"),
        (look("step train.py:5", call="clock_nanosleep", gil=True), "gil"),
        (look("step train.py:5", call="", state="R"), "itself"),
        (look("step train.py:5", call="openat", wchan="wait_for_partner", path="/f"), "pipe"),
        (look("step train.py:5", call="openat", state="D", path="/nfs/x"), "file"),
        (look("step train.py:5", call="vfork", state="D", wchan="kernel_clone"), "kernel"),
        (look("step train.py:5", call="pause", wchan="__do_sys_pause"), "sleep"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_stuck_rank_of_two_waits_for_what_its_state_says(seen: Look, expected: str) -> None:
    verdict = judge_job(job(), [held(0), rank(1, seen, seen, seen)])
    assert verdict.ranks.culprit == (1,)
    assert kind(verdict) == expected


def test_an_import_that_hangs_is_called_by_the_modules_name() -> None:
    stuck = look(
        "<module> SP/torch/_C/slow.py:1",
        "_call_with_frames_removed <frozen importlib._bootstrap>:241",
        "_find_and_load <frozen importlib._bootstrap>:1176",
        "<module> SP/torch/__init__.py:9",
        "_call_with_frames_removed <frozen importlib._bootstrap>:241",
        "_find_and_load <frozen importlib._bootstrap>:1176",
        "import_module STD/importlib/__init__.py:126",
        "imports OURS/rank/walk.py:66",
        "model OURS/pipelines/model_steps.py:7",
        "walk OURS/rank/walk.py:80",
        call="clock_nanosleep",
    )
    verdict = judge_job(job(), [rank(0, stuck, announced="import torch"), held(1)])
    assert verdict.call == "import torch"


def test_what_is_injected_counts_as_the_jobs_own_code() -> None:
    stuck = look(
        "_sleep OURS/rank/injections.py:88",
        "inject OURS/rank/walk.py:137",
        "walk OURS/rank/walk.py:80",
        call="clock_nanosleep",
    )
    verdict = judge_job(job(), [rank(0, stuck), held(1)])
    assert verdict.call == "time.sleep"
    assert verdict.component == "wandb"
    assert verdict.frame == "_sleep (injections.py:88)"


@pytest.mark.parametrize("ended", ["late", "still", "busy"])
def test_every_way_to_stand_still_is_a_hang(ended: Ended) -> None:
    assert judge_job(job(ended), [held(0), rank(1, RECV)]).outcome == "hang"


@pytest.mark.parametrize("left", [(0,), (1, 2), (0, 1, 2)])
def test_a_rank_that_is_done_and_does_not_end_is_the_culprit(left: tuple[int, ...]) -> None:
    ends = look("_shutdown STD/threading.py:1590")
    ranks = [
        rank(n, ends, reached=12, finished=True) if n in left else gone(n, 0, finished=True)
        for n in range(3)
    ]
    verdict = judge_job(job("still", world=3), ranks)
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == (left, ())
    assert kind(verdict) == "thread"


def test_where_names_the_culprits_only() -> None:
    verdict = judge_job(job(), [held(0), rank(1, RECV)])
    assert [(w.rank, w.pid, w.last_line_age) for w in verdict.where] == [(1, 101, 60.0)]


def test_where_names_what_each_culprit_is_in_and_waits_for() -> None:
    """Of two that wait for different things what holds of the first says nothing of the second."""
    opens = look("main train.py:4", call="openat", wchan="wait_for_partner", path="/f")
    sleeps = look("main train.py:5", call="clock_nanosleep")
    verdict = judge_job(job(), [rank(0, sleeps), rank(1, opens)])
    assert verdict.ranks.culprit == (0, 1)
    assert [(w.rank, w.call, w.waits_for and w.waits_for.kind) for w in verdict.where] == [
        (0, "time.sleep", "sleep"),
        (1, "open", "pipe"),
    ]


def test_where_names_the_gpu_that_the_process_computes_on() -> None:
    stuck = rank(1, RECV)
    assert stuck.pid is not None
    machine = MachineFacts(gpus=(Gpu(0, "H100", pids=(1,)), Gpu(3, "H100", pids=(stuck.pid,))))
    (place,) = judge_job(job(machine=machine), [held(0), stuck]).where
    assert place.gpu == 3


def test_the_table_of_these_tests_is_the_designs() -> None:
    assert [row.number for row in TABLE] == list(range(13))


def test_without_stacks_a_futex_is_not_blamed_before_what_is_known() -> None:
    asleep = look(call="futex", rung="proc")
    in_a_call = look(call="clock_nanosleep", rung="proc")
    verdict = judge_job(job(), [rank(0, asleep, reached=11), rank(1, in_a_call, reached=11)])
    assert verdict.ranks.culprit == (1,)
    assert verdict.ranks.waiting == (0,)
    assert verdict.seen_by == "proc"


OPENS = look("main train.py:4", call="openat", wchan="wait_for_partner", path="/f")


@pytest.mark.parametrize("opener", [0, 1])
def test_of_two_culprits_the_one_whose_wait_has_a_name_is_told_of_before_one_that_sleeps(
    opener: int,
) -> None:
    """A sleep ends by itself; what the other one waits for does not come by itself."""
    ranks = [rank(n, OPENS if n == opener else SLEEP) for n in range(2)]
    verdict = judge_job(job("still"), ranks)
    assert verdict.ranks.culprit == (0, 1)
    assert (verdict.call, kind(verdict)) == ("open", "pipe")
    assert verdict.cause is None or verdict.cause.id != "own-code-sleeps"


def test_a_sleep_is_told_of_before_a_wait_that_says_nothing() -> None:
    waits = look("wait STD/threading.py:320", "main train.py:4", call="futex")
    verdict = judge_job(job("still"), [rank(0, SLEEP), rank(1, waits)])
    assert (verdict.call, kind(verdict)) == ("time.sleep", "sleep")
