"""Processes that are stopped, frozen or traced, and children that do not end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import Descriptor, FileLock, Look
from hangbisect.base.rank_facts import RestartedProcess
from hangbisect.diagnosis.verdict import judge_job

from ..made_up import SLEEP, held, job, look, rank
from .scenes import Facts, Shows, causes_of
from .seen import LOADER, first, worker

STOPPED = look("step train.py:5", "<module> train.py:9", call="", state="T", wchan="do_signal_stop")
RUNS = look(
    "_PollLikeSelector.select STD/selectors.py:415",
    "Popen._communicate STD/subprocess.py:2108",
    "Popen.communicate STD/subprocess.py:1209",
    "run STD/subprocess.py:550",
    "fetch train.py:5",
    "<module> train.py:9",
    call="wait4",
    args=(300, 0, 0, 0),
)
FORKS = look(
    "_execute_child STD/subprocess.py:1900",
    "list_devices train.py:5",
    call="vfork",
    state="D",
    wchan="kernel_clone",
)


def program(name: str, *command: str, call: str = "recvfrom", **more: Any) -> Look:
    one = look(pid=300, ppid=100, name=name, call=call, rung="proc")
    return replace(one, command=(name, *command), **more)


def stopped() -> Facts:
    return job(), [rank(0, STOPPED, STOPPED), held(1)]


def stopped_by_debugger() -> Facts:
    traced = look("step train.py:5", call="", state="t", wchan="ptrace_stop", traced_by=4711)
    return job(), [rank(0, traced, traced), held(1)]


def frozen() -> Facts:
    asleep = replace(SLEEP, frozen="/docker/8d3f")
    return job(), [rank(0, asleep, asleep), held(1)]


def vfork_child() -> Facts:
    child = look(pid=300, ppid=100, name="python", call="execve", state="D", rung="proc")
    return job(), [first(FORKS, child), held(1)]


def child_program() -> Facts:
    return job(), [first(RUNS, program("nvidia-smi", "--list-gpus", call="ioctl")), held(1)]


def restarted_in_vain() -> Facts:
    """A supervisor sleeps until it starts its worker for the fifth time."""
    ended = RestartedProcess(
        "python", 4711, 4, 41.0, 1, "/job/worker.log", "MemoryError: no room for the cache"
    )
    return job(world=1, restarted=ended), [rank(0, SLEEP)]


SHOWS: Shows = {
    "restarted-in-vain": restarted_in_vain,
    "stopped": stopped,
    "stopped-by-debugger": stopped_by_debugger,
    "frozen": frozen,
    "vfork-child": vfork_child,
    "child-program": child_program,
}


def test_the_command_that_lets_it_go_on_has_its_pid() -> None:
    assert "kill -CONT 100" in causes_of(stopped())["stopped"].avoid


def test_a_stopped_worker_is_found_behind_the_rank_that_waits_for_it() -> None:
    one = worker("Shards.__getitem__ data.py:9", state="T", call="", wchan="do_signal_stop")
    found = causes_of((job(), [first(LOADER, one), held(1)]))["stopped"]
    assert "kill -CONT 300" in found.avoid


def test_what_reads_a_terminal_from_the_background_says_which() -> None:
    terminal = Descriptor(0, "tty", "/dev/pts/3")
    asks = look(
        "ask train.py:5", call="read", state="T", wchan="do_signal_stop", descriptors=(terminal,)
    )
    facts = job(), [rank(0, asks), held(1)]
    assert any("/dev/pts/3" in f for f in causes_of(facts)["stopped"].matched)


def test_a_rank_that_sleeps_is_neither_stopped_nor_frozen() -> None:
    found = causes_of((job(), [rank(0, SLEEP, SLEEP), held(1)]))
    assert not set(SHOWS) & set(found)


def test_a_sleeper_in_state_d_was_frozen_by_the_first_version_of_cgroups() -> None:
    one = look("step train.py:5", call="clock_nanosleep", state="D", wchan="hrtimer_nanosleep")
    assert "frozen" in causes_of((job(), [rank(0, one, one), held(1)]))


def test_a_sleeper_in_the_freezer_was_frozen_by_the_second() -> None:
    one = look("step train.py:5", call="clock_nanosleep", wchan="get_signal")
    assert "frozen" in causes_of((job(), [rank(0, one, one), held(1)]))


def test_the_program_and_its_words_are_named() -> None:
    aws = program("aws", "s3", "sync", "s3://corpus")
    why = causes_of((job(), [first(RUNS, aws), held(1)]))["child-program"].why
    assert "aws (300)" in why
    assert "aws s3 sync s3://corpus" in why


def test_of_a_shell_the_program_that_it_runs_is_named() -> None:
    shell = program("sh", "-c", "scontrol show", call="wait4")
    inside = replace(program("scontrol", "show"), pid=301, ppid=300)
    why = causes_of((job(), [first(RUNS, shell, inside), held(1)]))["child-program"].why
    assert "scontrol (301)" in why


def test_a_program_at_work_is_no_hang() -> None:
    works = program("convert", call="")
    works = replace(works, state="R", kernel=(replace(works.kernel[0], state="R"),))
    assert "child-program" not in causes_of((job(), [first(RUNS, works), held(1)]))


def test_a_worker_of_the_rank_is_no_program() -> None:
    one = worker("Shards.__getitem__ data.py:9", call="read")
    assert "child-program" not in causes_of((job(), [first(LOADER, one), held(1)]))


def test_a_process_of_multiprocessing_is_no_program_however_its_interpreter_is_spelled() -> None:
    """It starts sys.executable, whatever word the rank itself was started with; nobody can run
    its line by hand.
    """
    joins = look(
        "Popen.poll STD/multiprocessing/popen_fork.py:27",
        "Popen.wait STD/multiprocessing/popen_fork.py:43",
        "BaseProcess.join STD/multiprocessing/process.py:149",
        "<module> train.py:45",
        call="wait4",
        args=(300, 0, 0, 0),
    )
    joins = replace(joins, command=("python", "train.py"))
    acts = look(
        "Queue.put STD/multiprocessing/queues.py:89",
        "act train.py:19",
        "BaseProcess.run STD/multiprocessing/process.py:108",
        "spawn_main STD/multiprocessing/spawn.py:122",
        pid=300,
        ppid=100,
        name="python",
        call="futex",
    )
    spawned = (
        "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6, pipe_handle=8)"
    )
    acts = replace(acts, command=("/usr/bin/python", "-c", spawned, "--multiprocessing-fork"))
    found = causes_of((job(world=1), [first(joins, acts)]))
    assert "child-program" not in found
    assert "act (train.py:19)" in found["child-process-stuck"].why


def test_a_rank_that_is_stopped_while_a_program_runs_is_stopped() -> None:
    asleep = replace(RUNS, state="T", kernel=(replace(RUNS.kernel[0], state="T"),))
    found = causes_of((job(), [first(asleep, program("aws")), held(1)]))
    assert "child-program" not in found
    assert "stopped" in found


def test_who_is_in_vfork_waits_for_the_copy_of_it_that_has_not_become_a_program() -> None:
    """Not for another child, and for the kernel where no copy is seen."""
    facts, ranks = vfork_child()
    other = program("nvidia-smi", "--list-gpus", call="ioctl", pid=301)
    with_both = replace(ranks[0], children=(*ranks[0].children, (other,)))
    wait = judge_job(facts, [with_both, ranks[1]]).waits_for
    assert wait is not None
    assert (wait.kind, wait.pid, wait.process) == ("process", 300, "python")
    alone = judge_job(facts, [replace(ranks[0], children=((other,),)), ranks[1]]).waits_for
    assert alone is not None
    assert alone.kind == "kernel"


def test_why_a_process_ends_again_and_again_is_said_as_far_as_it_is_known() -> None:
    facts, ranks = restarted_in_vain()
    cause = causes_of((facts, ranks))["restarted-in-vain"]
    assert "python (4711 was the last) has ended 4 times within 41 s" in cause.why
    assert "MemoryError: no room for the cache" in cause.why
    assert "one ended with status 1" in cause.matched[0]
    assert facts.restarted is not None
    silent = replace(facts.restarted, status=-9, file="", error="", is_sure=True)
    cause = causes_of((replace(facts, restarted=silent), ranks))["restarted-in-vain"]
    assert "one was ended by SIGKILL" in cause.why
    left = replace(facts.restarted, name="", pid=0, status=None)  # all that attach has is its log
    cause = causes_of((replace(facts, restarted=left), ranks))["restarted-in-vain"]
    assert "what writes worker.log has ended 4 times within 41 s" in cause.why
    assert "MemoryError: no room for the cache" in cause.why
    cause = causes_of((replace(facts, restarted=silent), ranks))["restarted-in-vain"]
    by_itself = replace(silent, status=1, is_sure=False)
    other = causes_of((replace(facts, restarted=by_itself), ranks))["restarted-in-vain"]
    assert other.agreement < cause.agreement
    assert "restarted-in-vain" not in causes_of((replace(facts, restarted=None), ranks))


def test_who_is_traced_for_a_moment_was_looked_at_by_another_tool() -> None:
    traced = look("step train.py:5", call="", state="t", wchan="ptrace_stop", traced_by=4711)
    for looks in ((SLEEP, traced), (traced, SLEEP)):
        found = causes_of((job(), [rank(0, *looks), held(1)]))
        assert "stopped-by-debugger" not in found
    assert "stopped-by-debugger" in causes_of((job(), [rank(0, traced, traced), held(1)]))


def test_why_a_program_does_not_end_is_asked_of_it() -> None:
    lock = FileLock("/tmp/cache.lock", 5, 4711, "indexer")
    waits = look("take_turn convert.py:8", pid=300, ppid=100, call="flock", locks=(lock,))
    waits = replace(waits, command=("python", "convert.py"))
    verdict = judge_job(job(), [first(RUNS, waits), held(1)])
    assert verdict.cause is not None
    assert verdict.cause.id == "file-lock-held"
    assert verdict.cause.why.startswith("It waits for python convert.py (300)")
