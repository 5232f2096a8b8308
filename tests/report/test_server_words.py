"""A verdict on an inference server calls its ranks by their roles."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.rank_facts import JobFacts
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_snapshot
from hangbisect.report.verdict_rows import word_verdict

from ..diagnosis.made_up import look, rank


def test_a_role_is_whole_for_the_culprit_and_short_afterwards() -> None:
    engine = look("f SP/vllm/v1/engine/core.py:1", pid=90, command=("VLLM::EngineCore_DP0",))
    waits = look(
        "init_process_group SP/torch/distributed/distributed_c10d.py:9",
        call="poll",
        command=("VLLM::Worker_TP0",),
    )
    sleeps = look("nap train.py:3", call="clock_nanosleep", command=("VLLM::Worker_TP1",))
    ranks = [replace(rank(0, waits, waits), children=((engine,),)), rank(1, sleeps, sleeps)]
    job = JobFacts(ended="still", world_size=2)
    verdict, _ = judge_snapshot(job, Snapshot(ranks))
    rows = word_verdict(verdict, job, ranks).rows
    said = {row.label: row.text for row in rows}
    assert said["culprit"].startswith("Worker_TP1 of EngineCore_DP0")
    assert said["waiting"].startswith("Worker_TP0")
    assert "of EngineCore_DP0" not in said["waiting"]
