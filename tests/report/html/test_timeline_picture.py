"""The timeline as it is drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.checkpoints import STARTUP_BY_NAME
from hangbisect.base.events import decode
from hangbisect.base.verdict_facts import Ranks
from hangbisect.report.html.templates import ShownTexts
from hangbisect.report.html.timeline_picture import (
    MOST_SINGLE_ROWS,
    TimePicture,
    group_rows,
    time_picture,
    time_ticks,
)
from hangbisect.report.run_reader.run import RecordedRun
from hangbisect.report.run_reader.timeline import RankRow, Span
from hypothesis import given
from hypothesis import strategies as st

from .made_up import job, plain

BARRIER = "barrier after checkpoint 9"
TOKENIZER, MODEL = (
    f"{STARTUP_BY_NAME[name].number} {STARTUP_BY_NAME[name].title}"
    for name in ("tokenizer", "model")
)


def picture(run: RecordedRun) -> TimePicture:
    assert run.verdict
    found = time_picture(run, run.verdict, ShownTexts(plain()))
    assert found is not None
    return found


def row(rank: int, wait: float, ended: float | None = None) -> RankRow:
    """A rank that worked on a step, and waits since `wait`."""
    step = Span("step", "model", "Model created", 5, 1.0, wait, 0)
    held = Span("wait", BARRIER, BARRIER, 5, wait, None, 0)
    return RankRow(rank, "n1", (step, held), ended)


def test_each_of_a_few_ranks_has_a_row_and_the_culprit_is_first() -> None:
    found = picture(job(8))
    assert [one.who for one in found.rows] == [
        "rank 2",
        *(f"rank {r}" for r in (0, 1, 3, 4, 5, 6, 7)),
    ]
    assert [one.stands for one in found.rows] == ["at fault", *["only waits"] * 7]
    assert not any(one.lines for one in found.rows)


def test_a_block_is_a_checkpoint_with_its_imports_inside() -> None:
    first = picture(job(8)).rows[0]
    assert [b.name for b in first.blocks if b.kind == "work"][3:5] == [
        TOKENIZER,
        MODEL,
    ]
    step = next(b for b in first.blocks if b.name == TOKENIZER)
    torch = next(b for b in first.blocks if b.name == "import torch")
    assert step.x <= torch.x
    assert torch.x + torch.width <= step.x + step.width + 0.2


@pytest.mark.parametrize(("who", "kind"), [("rank 2", "hang"), ("rank 0", "wait")])
def test_the_hang_and_the_wait_go_on_to_the_end_of_the_row(who: str, kind: str) -> None:
    last = next(one for one in picture(job(8)).rows if one.who == who).blocks[-1]
    assert last.kind == kind
    assert last.x + last.width == pytest.approx(100, abs=0.2)


def test_phases_are_blocks_in_their_step_and_lines_of_their_own() -> None:
    said: list[tuple[float, str, dict[str, Any]]] = [
        (0.0, "table", {"numbers": {"training": 12}}),
        (0.0, "hello", {"rank": 1, "pid": 7, "host": "n1"}),
        (1.0, "enter", {"rank": 1, "n": 12}),
        (1.5, "phase", {"rank": 1, "n": 12, "name": "process_group"}),
        (4.0, "phase", {"rank": 1, "n": 12, "name": "wrap"}),
        (10.0, "verdict", {"outcome": "hang"}),
    ]
    (one,) = picture(
        replace(
            job(2), events=tuple(decode({"at": at, "t": kind, **more}) for at, kind, more in said)
        )
    ).rows
    assert [(block.kind, block.depth) for block in one.blocks][:3] == [
        ("work", 0),
        ("phase", 1),
        ("phase", 1),
    ]
    assert [(line.name, line.worked) for line in one.steps] == [
        ("12 Training finished", "9.0 s, not ended"),
        ("phase process group", "2.5 s"),
        ("phase wrap", "6.0 s, not ended"),
    ]


def test_many_ranks_are_a_row_that_unfolds_to_each_of_them() -> None:
    found = picture(job(64))
    assert [one.who for one in found.rows] == ["rank 21", "ranks 0-20,22-63"]
    many = found.rows[1]
    assert [line.rank for line in many.lines] == [r for r in range(64) if r != 21]
    assert many.host == "8 hosts"
    model = next(step for step in many.steps if step.name == MODEL)
    assert " to " in model.worked
    assert model.imports.startswith("transformers.models.llama ")


def test_a_group_has_the_median_of_its_ranks_and_their_extremes() -> None:
    rows = [row(rank, wait) for rank, wait in enumerate([2.0, 3.0, 9.0] * 10)]
    (group,) = group_rows(rows, Ranks(waiting=tuple(range(30))), 10.0)
    step = group.stretches[0]
    assert (step.start, step.end, step.least, step.most) == (1.0, 3.0, 1.0, 8.0)


def test_ranks_that_ended_or_stand_elsewhere_are_rows_of_their_own() -> None:
    rows = [
        row(rank, 2.0, ended=5.0 if rank == 7 else None) for rank in range(MOST_SINGLE_ROWS + 4)
    ]
    waiting = tuple(rank for rank in range(MOST_SINGLE_ROWS + 4) if rank not in (3, 7))
    found = group_rows(rows, Ranks(culprit=(3,), waiting=waiting, dead=(7,)), 10.0)
    assert [(group.standing, len(group.rows)) for group in found] == [
        ("culprit", 1),
        ("waiting", MOST_SINGLE_ROWS + 2),
        ("ended", 1),
    ]


def test_where_ranks_are_in_many_places_they_are_together_by_how_they_stand() -> None:
    rows = [
        replace(one, spans=(replace(one.spans[0], name=f"step {one.rank}", end=None),))
        for one in (row(rank, 2.0) for rank in range(500))
    ]
    found = group_rows(rows, Ranks(culprit=(3,), waiting=tuple(range(100, 500))), 10.0)
    assert [(group.standing, len(group.rows)) for group in found] == [
        ("culprit", 1),
        ("waiting", 400),
        ("", 99),
    ]


def test_where_no_rank_told_anything_there_is_no_timeline() -> None:
    run = replace(job(8), events=())
    assert run.verdict
    assert time_picture(run, run.verdict, ShownTexts(plain())) is None


@given(st.floats(0.01, 1e6))
def test_ticks_are_few_and_lie_inside(length: float) -> None:
    found = time_ticks(length)
    assert 2 <= len(found) <= 10
    assert found[0] == (0.0, "0 s")
    assert all(0 <= place <= 95 for place, _ in found)
