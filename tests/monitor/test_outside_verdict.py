"""The verdict on a job that is seen from outside alone: what NCCL and the libraries tell of ranks
that stand still counts there as well.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hangbisect.base.rank_facts import Ended, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.monitor import watcher_verdict
from hangbisect.monitor.watcher_verdict import judge_from_outside

from ..collect.test_ras_counts import answering, eight
from ..evidence.test_nccl_ras import one_behind


def judged(ranks: Sequence[RankFacts], ended: Ended = "still") -> Verdict:
    outside: Any = SimpleNamespace(
        facts=lambda started: list(ranks),
        rank_of={facts.pid: facts.rank for facts in ranks},
        expects_words=False,
    )
    began = time.monotonic() - 60.0
    verdict, *_ = asyncio.run(judge_from_outside(outside, ended, ("train",), (), began))
    return verdict


def test_counts_of_nccls_service_name_the_one_that_has_not_come() -> None:
    with answering(one_behind(), one_behind()) as port:
        verdict = judged(eight(port))
    assert verdict.ranks.culprit == (3,)
    assert any("has begun 41 AllReduce, but rank 3: 40" in note for note in verdict.notes)


def test_of_a_job_that_failed_nobody_is_asked() -> None:
    with answering() as port:
        verdict = judged(eight(port), "crash")
    assert not any("NCCL RAS" in note for note in verdict.notes)


def test_what_matters_of_the_variables_of_a_process_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert watcher_verdict._read_environment(1 << 30) == {}
    monkeypatch.setattr(
        watcher_verdict, "variables_of", lambda pid: {"NCCL_ALGO": "Ring", "PS1": "$"}
    )
    assert watcher_verdict._read_environment(os.getpid()) == {"NCCL_ALGO": "Ring"}
