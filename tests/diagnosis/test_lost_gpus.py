"""Ranks that all wait alike for their GPUs, of which the driver says that one is lost: its rank is
named, on whichever machine it is. Hosts, places on the bus and processes are made up; the driver's
lines have the form of public logs (see evidence/gpus/gpu_errors.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.rank_facts import Gpu, GpuError, MachineFacts, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.evidence.gpus.gpu_errors import parse_kernel_log
from hypothesis import given
from hypothesis import strategies as st

from .made_up import job, rank
from .test_pending_operations import ITEM, NAP, SPIN

WORLD, EACH = 8, 4
LINES = {
    "off the bus": "NVRM: Xid (PCI:0000:{place}:00): 79, pid='<unknown>', GPU has fallen off",
    "GSP": "NVRM: Xid (PCI:0000:{place}:00): 119, pid=1580, name=python3, Timeout waiting for RPC",
    "ECC": "NVRM: Xid (PCI:0000:{place}:00): 48, pid=1234, name=python3, DBE (double bit error)",
    "fault": "NVRM: Xid (PCI:0000:{place}:00): 31, pid=1234, name=python3, Ch 00000008, MMU",
}
RECOVERED = "NVRM: Xid (PCI:0000:{place}:00): 63, pid=1234, name=python3, Row Remapper: New row"


def errors(line: str, *gpus: int) -> tuple[GpuError, ...]:
    said = [line.format(place=f"0{gpu}") for gpu in gpus]
    return parse_kernel_log([f"3,{n},90000000,-;{one}" for n, one in enumerate(said)])


def machine(first: int, many: int, *found: GpuError, **of: Any) -> MachineFacts:
    """So many GPUs, of the ranks from `first` on; `of` changes one of them: `of={2: {...}}`."""
    changes: Mapping[int, Mapping[str, Any]] = of.get("of", {})
    gpus = [
        Gpu(n, "NVIDIA H100", 1.0, 120.0, 700.0, pids=(100 + first + n,), bus=f"0000:0{n}:00.0")
        for n in range(many)
    ]
    return MachineFacts(
        gpus=tuple(replace(gpu, **changes.get(gpu.index, {})) for gpu in gpus), gpu_errors=found
    )


def standing(one: Any = ITEM, **environment: str) -> list[RankFacts]:
    """Eight ranks in the same call, four on each of two machines."""
    found = []
    for number in range(WORLD):
        host, local = ("n01", "n02")[number // EACH], number % EACH
        own = {"LOCAL_RANK": str(local), **environment}
        made = rank(number, one, replace(one, at=103.0), replace(one, at=106.0))
        found.append(
            replace(made, host=host, local_rank=local, environment=own, busy=one.state == "R")
        )
    return found


def judged(ranks: Sequence[RankFacts], first: MachineFacts, second: MachineFacts) -> Verdict:
    return judge_job(job("late", WORLD, machines={"n01": first, "n02": second}), ranks)


@pytest.mark.parametrize("one", [ITEM, SPIN], ids=["native frames", "no native frames"])
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_the_rank_of_the_gpu_is_named_on_its_machine(line: str, one: Any) -> None:
    """Its neighbour on the other machine has a GPU at the same place."""
    verdict = judged(standing(one), machine(0, 4), machine(4, 4, *errors(line, 2)))
    assert verdict.ranks.culprit == (6,)
    assert verdict.ranks.waiting == (0, 1, 2, 3, 4, 5, 7)
    assert verdict.where[0].host == "n02"
    assert verdict.where[0].gpu == 2


def test_the_cause_says_the_machine() -> None:
    found = errors(LINES["off the bus"], 2)
    verdict = judged(standing(), machine(0, 4), machine(4, 4, *found))
    assert verdict.cause is not None
    assert verdict.cause.id == "gpu-lost"
    assert verdict.cause.matched[0].startswith("n02: GPU 2 (0000:02:00) of rank 6: Xid 79")


def test_of_one_machine_the_cause_does_not_say_which() -> None:
    alone = [replace(facts, host="n01", local_rank=n) for n, facts in enumerate(standing())]
    facts = job("late", WORLD, machine=machine(0, 8, *errors(LINES["off the bus"], 3)))
    verdict = judge_job(facts, alone)
    assert verdict.ranks.culprit == (3,)
    assert verdict.cause is not None
    assert verdict.cause.matched[0].startswith("GPU 3 (0000:03:00) of rank 3: Xid 79")


@pytest.mark.parametrize("state", ["lost", "reset required", "no handle"])
def test_nvml_is_believed_without_the_kernels_log(state: str) -> None:
    """NVML no longer knows who used it: it is that of the rank that was given it."""
    lost = machine(4, 4, of={1: {"state": state, "pids": (), "said": "NVML says so"}})
    verdict = judged(standing(), machine(0, 4), lost)
    assert verdict.ranks.culprit == (5,)


def test_all_gpus_of_a_machine_are_lost() -> None:
    found = errors(LINES["off the bus"], 0, 1, 2, 3)
    assert judged(standing(), machine(0, 4, *found), machine(4, 4)).ranks.culprit == (0, 1, 2, 3)


def test_what_a_gpu_recovers_from_accuses_nobody() -> None:
    verdict = judged(standing(), machine(0, 4), machine(4, 4, *errors(RECOVERED, 2)))
    assert verdict.ranks.culprit != (6,)


def test_a_gpu_that_is_another_jobs_accuses_nobody() -> None:
    found = errors(LINES["off the bus"], 2)
    verdict = judged(standing(), machine(0, 4), machine(4, 4, *found, of={2: {"pids": (4711,)}}))
    assert verdict.ranks.culprit != (6,)


def test_an_error_that_is_of_no_known_gpu_accuses_nobody() -> None:
    bare = MachineFacts(gpu_errors=errors(LINES["off the bus"], 2))
    assert len(judged(standing(), machine(0, 4), bare).ranks.culprit) != 1


def test_a_rank_that_moves_is_not_accused() -> None:
    ranks = standing()
    ranks[6] = replace(ranks[6], moved="it has read 3 MB")
    found = errors(LINES["off the bus"], 2)
    assert 6 not in judged(ranks, machine(0, 4), machine(4, 4, *found)).ranks.culprit


def test_who_stands_elsewhere_and_whose_gpu_is_lost_may_both_be_to_blame() -> None:
    """A rank sleeps in its own code, and another one's GPU is gone: the second is never left out,
    for what was queued on it will not end.
    """
    ranks = standing()
    for_one = standing(NAP)[1]
    ranks[1] = replace(for_one, environment=ranks[1].environment)
    found = errors(LINES["off the bus"], 2)
    assert 6 in judged(ranks, machine(0, 4), machine(4, 4, *found)).ranks.culprit


@given(
    st.sets(st.integers(0, 3), max_size=4),
    st.sets(st.integers(0, WORLD - 1), min_size=4, max_size=4),
    st.booleans(),
)
def test_with_half_of_the_evidence_missing_never_another_rank_alone(
    unnamed: set[int], without: set[int], unread: bool
) -> None:
    """NVML does not name processes, half of the environments could not be read, and perhaps no
    machine but its own has told of its GPUs.
    """
    ranks = [
        replace(facts, environment={}) if facts.rank in without else facts for facts in standing()
    ]
    hidden = {gpu: {"pids": ()} for gpu in unnamed}
    own = machine(4, 4, *errors(LINES["off the bus"], 2), of=hidden)
    named = judged(ranks, MachineFacts() if unread else machine(0, 4), own).ranks.culprit
    assert named == (6,) or len(named) != 1
    if 2 not in unnamed or 6 not in without:
        assert named == (6,)
