"""A Python program that a job has started besides its ranks goes by its script."""

from __future__ import annotations

from hangbisect.base.process_facts import Look
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.verdict import judge_job

from .causes.seen import pipe
from .made_up import job, look, rank
from .queues import receives, unix

FULL = pipe(1, 100)


def judge(*words: str) -> Verdict:
    """A rank that waits for a batch of a service, which writes its log into a full pipe."""
    service = look(
        "StreamHandler.emit STD/logging/__init__.py:1113",
        "<module> service.py:19",
        pid=300,
        ppid=100,
        call="write",
        wchan="anon_pipe_write",
        descriptors=(FULL,),
        command=words,
    )
    asks: Look = receives(0, unix(300))
    facts = rank(0, asks, asks, children=((service, service),))
    return judge_job(job(world=1), [facts])


def said(verdict: Verdict) -> str:
    cause, wait = verdict.cause, verdict.waits_for
    assert cause is not None
    assert wait is not None
    edges = (edge.evidence for edge in verdict.chain)
    return "\n".join([cause.why, *cause.matched, *edges, wait.process or ""])


def test_a_program_of_another_script_is_named_by_it() -> None:
    verdict = judge("/venv/bin/python", "-u", "tools/service.py", "batches.sock")
    assert "python service.py (300)" in said(verdict)
    assert "python (300)" not in said(verdict)
    assert verdict.waits_for is not None
    assert verdict.waits_for.process == "python service.py"


def test_what_has_the_ranks_own_script_or_none_is_named_as_the_kernel_has_it() -> None:
    spawned = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(3)")
    for words in (
        ("python", "train.py"),
        (*spawned, "--multiprocessing-fork"),
        ("python", "-c", "x"),
    ):
        assert "python (300)" in said(judge(*words))
