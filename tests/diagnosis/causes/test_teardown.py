"""The end of a job that does not come."""

from __future__ import annotations

from ..made_up import ALL_REDUCE, held, job, look, rank
from .scenes import Facts, Shows, causes_of
from .seen import FOREVER, LOCK, beside, first, native

WRITER = (
    "Condition.wait STD/threading.py:327",
    "Queue.get STD/queue.py:171",
    "Writer.run writer.py:12",
    "Thread._bootstrap_inner STD/threading.py:1045",
)
ENDS = native(look("_shutdown STD/threading.py:1590", args=FOREVER), *LOCK)
JOINS = look(
    "Popen.poll STD/multiprocessing/popen_fork.py:27",
    "Popen.wait STD/multiprocessing/popen_fork.py:43",
    "BaseProcess.join STD/multiprocessing/process.py:149",
    "_exit_function STD/multiprocessing/util.py:357",
    call="wait4",
    args=(300, 0, 0, 0),
)


def thread_at_exit() -> Facts:
    return job(), [first(beside(ENDS, ("writer", WRITER)), reached=11), held(1, reached=11)]


def child_at_exit() -> Facts:
    child = look(
        "serve metrics.py:4",
        "BaseProcess.run STD/multiprocessing/process.py:108",
        "Popen._launch STD/multiprocessing/popen_fork.py:71",
        pid=300,
        ppid=100,
        call="accept4",
    )
    return job(), [first(JOINS, child), held(1)]


def compile_workers_at_exit() -> Facts:
    waits = look(
        "Popen._wait STD/subprocess.py:2041",
        "Popen.wait STD/subprocess.py:1264",
        "SubprocPool.shutdown SP/torch/_inductor/compile_worker/subproc_pool.py:342",
        "shutdown_compile_workers SP/torch/_inductor/async_compile.py:178",
        call="wait4",
    )
    return job(), [rank(0, waits), held(1)]


def wandb_at_exit() -> Facts:
    waits = look(
        "Condition.wait STD/threading.py:331",
        "Run._on_finish SP/wandb/sdk/wandb_run.py:2600",
        "Run._atexit_cleanup SP/wandb/sdk/wandb_run.py:2300",
    )
    return job(), [rank(0, waits), held(1)]


def group_at_exit() -> Facts:
    ends = look(
        "destroy_process_group SP/torch/distributed/distributed_c10d.py:2250",
        "main train.py:90",
        "<module> train.py:99",
    )
    return job(), [rank(0, ends), rank(1, ALL_REDUCE)]


SHOWS: Shows = {
    "thread-at-exit": thread_at_exit,
    "child-at-exit": child_at_exit,
    "compile-workers-at-exit": compile_workers_at_exit,
    "wandb-at-exit": wandb_at_exit,
    "group-at-exit": group_at_exit,
}


def test_the_thread_and_where_it_is_are_named() -> None:
    why = causes_of(thread_at_exit())["thread-at-exit"].why
    assert "thread writer" in why
    assert "Writer.run (writer.py:12)" in why


def test_a_script_that_joins_a_thread_is_not_at_its_end() -> None:
    joins = look("Thread.join STD/threading.py:1119", "main train.py:5", "<module> train.py:9")
    one = first(beside(joins, ("writer", WRITER)))
    assert not set(SHOWS) & set(causes_of((job(), [one, held(1)])))


def test_a_finish_in_the_middle_of_a_script_is_less_sure() -> None:
    early = look(
        "Condition.wait STD/threading.py:331",
        "Run.finish SP/wandb/sdk/wandb_run.py:2400",
        "main train.py:5",
        "<module> train.py:9",
    )
    found = causes_of((job(), [rank(0, early), held(1)]))
    assert found["wandb-at-exit"].agreement < causes_of(wandb_at_exit())["wandb-at-exit"].agreement
