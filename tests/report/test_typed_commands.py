"""A command that is offered to a person starts the job again: a title starts nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.command_words import can_be_typed
from hangbisect.base.rank_facts import JobFacts
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_snapshot
from hangbisect.report.issue_sections import reproduce_sections
from hangbisect.report.run_reader.run import RecordedRun
from hangbisect.report.verdict_rows import word_verdict

from ..diagnosis.made_up import look, rank

UNTYPED = [
    ("VLLM::EngineCore_DP0",),
    ("sglang::scheduler_TP0  ",),
    ("ray::Trainer.train",),
    ("ray::IDLE",),
    ("dask worker [tcp://127.0.0.1:36321]",),
    ("python", "/v/ray/_private/workers/default_worker.py", "--node-ip-address=::1"),
    ("python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork"),
]
TYPED = [("python", "train.py"), ("vllm", "serve", "m"), ("./train",), ("torchrun", "a.py")]


@pytest.mark.parametrize(
    ("words", "typed"), [*((one, False) for one in UNTYPED), *((one, True) for one in TYPED)]
)
def test_only_what_can_be_typed_proves_a_hang(
    tmp_path: Path, words: tuple[str, ...], typed: bool
) -> None:
    assert can_be_typed(words) == typed
    job = JobFacts(ended="still", command=words)
    waits = look("nap train.py:3", call="clock_nanosleep")
    verdict, _ = judge_snapshot(job, Snapshot([rank(0, waits, waits)]))
    verdict = replace(verdict, outcome="hang")
    assert ("prove it" in str(word_verdict(verdict, job, []))) == typed
    assert bool(reproduce_sections(RecordedRun(tmp_path, verdict=verdict))) == typed
