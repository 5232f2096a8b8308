"""Eight ranks with NCCL, of which one has not come: which one, by whatever was recorded.

NCCL's calls return once the operation is in the GPU's queue, so all main threads stand in
`.item()` or the like, and the stacks tell nobody apart. What is recorded does: torch's flight
recorder, our own log, or, where there is neither, that one rank stands elsewhere. With a part of
the evidence gone the answer is the same, or that nobody can be named, and never another rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import CollectiveLog, Gpu, MachineFacts, RankFacts
from hangbisect.base.verdict_facts import Verdict
from hangbisect.diagnosis.collectives.pending_operations import find_pending_operations
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.dumps.contents import Contents, RecordedLog
from hangbisect.dumps.merge import judge_dumps, merge_dumps
from hangbisect.evidence.gpus.flight_recorder import load_dump, parse_dump
from hangbisect.report.rows import Row
from hangbisect.report.verdict_rows import word_verdict
from hypothesis import given
from hypothesis import strategies as st

from .made_up import job, rank
from .recorder_dumps import VERSIONS, dump, entry, rounds, written
from .test_pending_operations import ITEM, OWN, RECV, SPIN, log

WORLD = 8
ALL = {"0": range(WORLD)}
GPUS = MachineFacts(
    gpus=tuple(Gpu(n, "NVIDIA H100", 1.0, 120.0, 700.0, pids=(100 + n,)) for n in range(WORLD))
)


def recorded(one: dict[str, Any], form: str = "pickle") -> CollectiveLog:
    """A dump as it is read from its file."""
    found = parse_dump(load_dump(written(one, form)), "flight recorder")
    assert found is not None
    return found


def standing(number: int, one: Look, *logs: CollectiveLog) -> RankFacts:
    seen = rank(number, one, replace(one, at=103.0), replace(one, at=106.0))
    return replace(seen, collectives=logs, busy=one.state == "R")


def judged(ranks: Sequence[RankFacts], world: int = WORLD) -> Verdict:
    return judge_job(job("late", world, machine=GPUS), ranks)


def of_all(one: Look, logs: Sequence[CollectiveLog | None]) -> list[RankFacts]:
    return [standing(n, one, *([found] if found else [])) for n, found in enumerate(logs)]


def one_behind(who: int, version: str = "2.10", form: str = "pickle") -> list[CollectiveLog]:
    ahead = recorded(dump(rounds(41, "started"), ALL, version), form)
    behind = recorded(dump(rounds(40), ALL, version), form)
    return [behind if n == who else ahead for n in range(WORLD)]


# ---- A, A': the recorder of every rank; with and without native frames ---------------------------


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("one", [ITEM, SPIN], ids=["native frames", "no native frames"])
def test_who_never_entered_is_named(one: Look, version: str, form: str) -> None:
    verdict = judged(of_all(one, one_behind(3, version, form)))
    assert verdict.ranks.culprit == (3,)
    assert verdict.ranks.waiting == (0, 1, 2, 4, 5, 6, 7)


@pytest.mark.parametrize("state", ["scheduled", "started"])
def test_scheduled_and_started_are_both_not_done(state: str) -> None:
    """Without TORCH_NCCL_ENABLE_TIMING what has begun on the GPU still counts as scheduled."""
    ahead, behind = recorded(dump(rounds(41, state), ALL)), recorded(dump(rounds(40), ALL))
    logs = [behind if n == 6 else ahead for n in range(WORLD)]
    assert judged(of_all(ITEM, logs)).ranks.culprit == (6,)


def test_what_has_fallen_out_of_the_buffer_was_entered_all_the_same() -> None:
    """A rank that went far ahead has lost what the others wait in; its counter tells."""
    last = rounds(90, "scheduled")[60:]
    ahead = recorded(dump(last, ALL))
    middle = recorded(dump(rounds(41, "started"), ALL))
    logs = [ahead if n == 2 else middle for n in range(WORLD)]
    logs[5] = recorded(dump(rounds(40), ALL))
    assert judged(of_all(ITEM, logs)).ranks.culprit == (5,)


# ---- B: another shape; C: only our own log; D: no log at all -------------------------------------


def test_another_shape_is_put_down_to_its_rank() -> None:
    wide = [*rounds(40), entry("nccl:all_reduce", 41, "started", input_sizes=[[8]])]
    logs = [recorded(dump(rounds(41, "started"), ALL)) for _ in range(WORLD)]
    logs[3] = recorded(dump(wide, ALL))
    verdict = judged(of_all(ITEM, logs))
    assert verdict.ranks.culprit == (3,)
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"


def test_our_log_of_calls_that_return_at_once_tells_as_well() -> None:
    ahead, behind = log([("0", "all_reduce", None)] * 41), log([("0", "all_reduce", None)] * 40)
    logs = [behind if n == 3 else ahead for n in range(WORLD)]
    assert judged(of_all(ITEM, logs)).ranks.culprit == (3,)


def _of_two(one: Look, other: Look) -> list[RankFacts]:
    """All ranks, of which two have native frames: so many are paused for them."""
    return [standing(n, one if n in (2, 5) else other) for n in range(WORLD)]


@pytest.mark.parametrize(
    "ranks",
    [of_all(ITEM, [None] * WORLD), _of_two(ITEM, SPIN), of_all(ITEM, [None] * 2)],
    ids=["native frames of all", "of two", "a world of two"],
)
def test_without_any_log_nobody_can_be_named(ranks: list[RankFacts]) -> None:
    """D: all look alike, and a busy GPU explains nothing. What would tell is said."""
    verdict = judged(ranks, len(ranks))
    assert verdict.ranks.culprit == ()
    assert verdict.ranks.stuck == tuple(range(len(ranks)))
    assert verdict.cause is None
    (note,) = (one for one in verdict.notes if "nobody can be named" in one)
    assert all(word in note for word in ("RAS", "flight recorder", "TORCH_FR_BUFFER_SIZE"))
    assert any(row.label == "says" and "RAS" in row.text for row in _rows(verdict, ranks))


def _rows(verdict: Verdict, ranks: list[RankFacts]) -> Sequence[Row]:
    return word_verdict(verdict, job("late", len(ranks)), ranks).rows


def test_a_rank_alone_is_named_and_so_are_those_whose_own_kernels_are_seen() -> None:
    alone = judged([standing(0, ITEM)], 1)
    assert (alone.ranks.culprit, alone.cause and alone.cause.id) == ((0,), "gpu-busy")
    seen = [replace(one, gpu_kernels=("my_kernel",)) for one in of_all(ITEM, [None] * WORLD)]
    assert judged(seen).ranks.culprit == tuple(range(WORLD))


# ---- E, E3: no log, and one rank that stands elsewhere -------------------------------------------


@pytest.mark.parametrize("other", [OWN, RECV], ids=["its own sleep", "a dead data server"])
@pytest.mark.parametrize("source", ["none", "recorder", "half of the recorders"])
def test_who_stands_elsewhere_is_named(other: Look, source: str) -> None:
    logs: list[CollectiveLog | None] = [*one_behind(3)]
    if source == "none":
        logs = [None] * WORLD
    elif source == "half of the recorders":
        logs[:4] = [None] * 4
    ranks = [
        standing(n, other if n == 3 else ITEM, *([found] if found else []))
        for n, found in enumerate(logs)
    ]
    assert judged(ranks).ranks.culprit == (3,)


# ---- a part of the evidence ----------------------------------------------------------------------


@given(st.integers(0, WORLD - 1), st.sets(st.integers(0, WORLD - 1)))
def test_with_a_part_of_the_logs_never_another_rank_alone(who: int, lost: set[int]) -> None:
    """The one that is behind is named, or the ranks of which nothing is known are among those that
    are: a rank that waits in an operation by its own log is not.
    """
    logs: list[CollectiveLog | None] = [*one_behind(who)]
    for number in lost:
        logs[number] = None
    named = set(judged(of_all(ITEM, logs)).ranks.culprit)
    known = set(range(WORLD)) - lost
    if known >= {who} and len(known) > 1:
        assert named - lost == {who}
    if who not in lost:
        assert not named or who in named


@given(st.integers(0, WORLD - 1), st.sets(st.integers(0, WORLD - 1), max_size=WORLD - 1))
def test_with_a_part_of_the_files_alone_never_another_rank(who: int, lost: set[int]) -> None:
    """Of ranks whose dump nobody has is said that they are not seen, and the others wait."""
    logs = one_behind(who)
    found = tuple(
        RecordedLog(logs[n], f"trace_rank_{n}", tuple(range(WORLD)), n)
        for n in range(WORLD)
        if n not in lost
    )
    merged = merge_dumps(Contents(recorded=found))
    assert merged.unseen == tuple(sorted(lost))
    named = judge_dumps(merged).ranks.culprit
    assert named == ((who,) if who not in lost and len(found) > 1 else ())


def test_a_recorder_that_was_switched_off_says_of_nobody_that_he_is_behind() -> None:
    """A rank tells how far its groups came all the same, and that counts in another way."""
    ahead = recorded(dump(rounds(41, "started"), ALL))
    off = replace(recorded(dump([], ALL)), sequence={"0": 57})
    ranks = of_all(ITEM, [off if n == 3 else ahead for n in range(WORLD)])
    assert not find_pending_operations(ranks)


@pytest.mark.parametrize("many", [1, 2, 8])
def test_of_files_by_which_nobody_waits_nobody_is_named(many: int) -> None:
    """All that each has begun is done: what it did next stands in no log."""
    done = recorded(dump(rounds(40), ALL))
    logs = tuple(RecordedLog(done, f"trace_rank_{n}", (*range(8),), n) for n in range(many))
    assert judge_dumps(merge_dumps(Contents(recorded=logs))).ranks.culprit == ()


# ---- several groups, sends, coalesced operations -------------------------------------------------


def test_a_rank_that_is_missing_in_one_of_several_groups() -> None:
    """Tensor parallel pairs: 6 waits in its pair for 7; all others wait in the whole group."""
    pairs = {"0": range(8), **{str(n + 1): (2 * n, 2 * n + 1) for n in range(4)}}
    logs = []
    for number in range(WORLD):
        pair = (str(number // 2 + 1), f"tp_{number // 2}")
        own = [entry("nccl:_all_gather_base", n + 1, group=pair) for n in range(5)]
        if number == 6:
            own.append(entry("nccl:_all_gather_base", 6, "started", group=pair))
        elif number != 7:
            own += [entry("nccl:_all_gather_base", 6, group=pair), *rounds(3, "started")]
        logs.append(recorded(dump(own, pairs)))
    verdict = judged(of_all(ITEM, logs))
    assert verdict.ranks.culprit == (7,)


@pytest.mark.parametrize("name", ["nccl:all_reduce_barrier", "nccl:barrier"])
def test_a_barrier_is_called_one(name: str) -> None:
    """NCCL has no barrier of its own: torch reduces a single number, and newer ones name it so."""
    ahead = [*rounds(40), entry(name, 41, "started", input_sizes=[[1]])]
    logs = [recorded(dump(rounds(40) if n == 1 else ahead, ALL)) for n in range(WORLD)]
    assert logs[0].operations[-1].kind == "barrier"
    assert judged(of_all(ITEM, logs)).ranks.culprit == (1,)


def test_coalesced_collectives_have_one_number_together() -> None:
    """FSDP's reduce_scatter of several tensors: the parts are never more than scheduled."""

    def round_of(number: int, state: str) -> list[dict[str, Any]]:
        part = entry("nccl:_reduce_scatter_base", number, "scheduled")
        return [part, part, entry("nccl:coalesced", number, state)]

    done = [one for n in range(4) for one in round_of(n + 1, "completed")]
    ahead = recorded(dump([*done, *round_of(5, "started")], ALL))
    behind = recorded(dump(done, ALL))
    logs = [behind if n == 4 else ahead for n in range(WORLD)]
    assert judged(of_all(ITEM, logs)).ranks.culprit == (4,)
    healthy = of_all(ITEM, [behind] * WORLD)
    assert judged(healthy).ranks.waiting == ()


def batch(number: int, peer: int, state: str, way: str = "send") -> list[dict[str, Any]]:
    arrow = "->" if way == "send" else "<-"
    part = entry(f"nccl:{way} 0{arrow}{peer}", number, "scheduled")
    return [part, entry("nccl:coalesced", number, state, is_p2p=True)]


def test_what_was_sent_in_a_batch_that_is_done_is_done() -> None:
    """The parts of a batch keep the state in which they were written down."""
    found = recorded(dump([*batch(1, 1, "completed"), *batch(2, 1, "started")], ALL))
    assert [one.done for one in found.operations] == [True, True, False, False]


def test_a_pipeline_waits_for_the_stage_that_sends_nothing() -> None:
    """Each stage receives from the one before it; stage 0 has not sent its third."""
    logs = []
    for number in range(WORLD):
        sends = [
            entry(f"nccl:send {number}->{number + 1}", n + 1, "completed") for n in range(2)
        ] * (number < WORLD - 1)
        receives = [
            entry(f"nccl:recv {number}<-{number - 1}", n + 1, "started" if n == 2 else "completed")
            for n in range(3)
        ] * (number > 0)
        logs.append(recorded(dump([*receives, *sends], ALL)))
    assert judged(of_all(ITEM, logs)).ranks.culprit == (0,)
