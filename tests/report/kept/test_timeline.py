"""Where each rank was when, from its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.events import decode
from hangbisect.base.json_codec import from_json
from hangbisect.base.verdict_facts import Verdict
from hangbisect.report.run_reader.run import RecordedRun, read_run
from hangbisect.report.run_reader.timeline import RankRow, Timeline, read_timeline
from hypothesis import given, settings
from hypothesis import strategies as st

from ...examples import examples
from .made_up import EPOCH, VERDICT, event, hello, write_run

TABLE = {"script": 1, "wandb_logger": 9, "training": 12}
OK = {**VERDICT, "outcome": "ok"}


def run(events: Iterable[Mapping[str, Any]], verdict: Mapping[str, Any] = OK) -> RecordedRun:
    return RecordedRun(
        Path("run"), verdict=from_json(Verdict, verdict), events=tuple(map(decode, events))
    )


def words(row: RankRow) -> list[str]:
    """Return a row as lines: its depth by spaces, and "-" for what has not ended."""
    return [
        f"{'  ' * s.depth}{s.kind} {s.name} {s.start:g} to {'-' if s.end is None else f'{s.end:g}'}"
        for s in row.spans
    ]


def rows_of(found: Timeline) -> list[list[str]]:
    return [words(row) for row in found.rows]


def table(at: float) -> dict[str, Any]:
    return event(at, "table", numbers=TABLE)


def test_steps_imports_and_waits_at_our_barriers_are_apart() -> None:
    events = [
        hello(10.0, 0),
        table(10.0),
        event(11.0, "enter", 0, n=1),
        event(12.0, "call", 0, call="import torch"),
        event(14.0, "import", 0, module="torch", seconds=2.0),
        event(15.0, "reached", 0, n=1),
        event(15.0, "arrive", 0, n=1, held=True),
        event(18.0, "opened", n=1),
        event(18.0, "enter", 0, n=9),
        event(20.0, "verdict", outcome="ok"),
    ]
    found = read_timeline(run(events))
    assert rows_of(found) == [
        [
            "step script 1 to 5",
            "  import torch 2 to 4",
            "wait barrier after checkpoint 1 5 to 8",
            "step wandb_logger 8 to -",
        ]
    ]
    assert (found.length, found.began) == (10.0, EPOCH + 10.0)
    assert found.rows[0].spans[-1].title == "WandbLogger ready"


def test_an_import_that_does_not_end_is_open() -> None:
    events = [
        hello(0.0, 0),
        table(0.0),
        event(1.0, "enter", 0, n=1),
        event(2.0, "call", 0, call="import torch"),
        event(9.0, "verdict", outcome="hang"),
    ]
    assert rows_of(read_timeline(run(events))) == [["step script 1 to -", "  import torch 2 to -"]]


def test_phases_lie_inside_their_step_and_end_with_the_next() -> None:
    events = [
        hello(0.0, 0),
        table(0.0),
        event(1.0, "enter", 0, n=12),
        event(2.0, "phase", 0, n=12, name="setup"),
        event(3.0, "phase", 0, n=12, name="first_batch"),
        event(3.5, "pulse", 0, step=1),
        event(4.0, "reached", 0, n=12),
        event(5.0, "finished", 0),
    ]
    assert rows_of(read_timeline(run(events))) == [
        ["step training 1 to 4", "  phase setup 2 to 3", "  phase first_batch 3 to 4"]
    ]


def test_the_steps_of_a_users_own_script_may_lie_inside_one_another() -> None:
    def step(at: float, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        return event(at, kind, 0, step=name, k=1, title=name.title(), **fields)

    events = [
        hello(0.0, 0),
        table(0.0),
        step(1.0, "begin", "trainer", checkpoint="training"),
        step(2.0, "begin", "group", checkpoint=None),
        step(3.0, "end", "group"),
        step(4.0, "end", "trainer"),
        event(5.0, "quiet", 0),
        event(9.0, "bye", 0, status=0),
    ]
    (row,) = read_timeline(run(events)).rows
    assert words(row) == [
        "own step trainer 1 to 4",
        "  own step group 2 to 3",
        "training training 5 to 9",
    ]
    assert [span.number for span in row.spans] == [12, None, None]
    assert row.ended == 9.0


def test_the_hang_lasts_to_the_end_and_who_waits_for_it_is_drawn_apart() -> None:
    seconds = {**VERDICT["seconds"], "still": 4.0}
    events = [
        hello(0.0, 0),
        hello(0.0, 1),
        table(0.0),
        event(1.0, "enter", 0, n=9),
        event(1.0, "enter", 1, n=9),
        event(3.0, "call", 1, call="wandb.init"),
        event(10.0, "verdict", outcome="hang"),
        event(11.0, "ended", 1, status=-9),
    ]
    found = read_timeline(run(events, {**VERDICT, "seconds": seconds}))
    assert rows_of(found) == [
        ["step wandb_logger 1 to -", "  wait for rank 1 1 to -"],
        ["step wandb_logger 1 to -", "  hang wandb.init 6 to -"],
    ]
    assert found.length == 10.0  # what follows the verdict is our own doing
    assert found.rows[1].ended is None


def test_a_rank_that_never_started_has_a_row_that_is_a_hang() -> None:
    ranks = {**VERDICT["ranks"], "culprit": [1], "never_started": [1], "waiting": []}
    events = [hello(0.0, 0), event(9.0, "verdict", outcome="hang")]
    assert rows_of(read_timeline(run(events, {**VERDICT, "ranks": ranks}))) == [
        [],
        ["hang never started 0 to -"],
    ]


def test_a_verdict_that_was_taken_back_ends_nothing() -> None:
    events = [
        hello(0.0, 0),
        table(0.0),
        event(1.0, "enter", 0, n=9),
        event(2.0, "verdict", outcome="hang"),
        event(3.0, "taken back"),
        event(5.0, "reached", 0, n=9),
    ]
    found = read_timeline(run(events))
    assert (rows_of(found), found.length) == ([["step wandb_logger 1 to 5"]], 5.0)


def test_what_rank_0_does_for_the_others_is_waited_for() -> None:
    events = [
        hello(0.0, 0),
        hello(0.0, 1),
        event(1.0, "await", 1, what="logs directory", ranks=[0]),
        event(4.0, "did", 0, what="logs directory"),
        event(5.0, "await", 1, what="logs directory", ranks=[0]),
        event(6.0, "said", text="x"),
    ]
    assert rows_of(read_timeline(run(events))) == [[], ["wait logs directory 1 to 4"]]


def test_a_process_that_learns_its_number_later_has_one_row() -> None:
    events = [
        hello(0.0, 0, pid=7),
        event(1.0, "begin", 0, step="a", k=1, title="A"),
        hello(2.0, 1, pid=7, instead_of=0),
        event(3.0, "end", 1, step="a", k=1),
    ]
    found = read_timeline(run(events))
    assert [(row.rank, words(row)) for row in found.rows] == [(1, ["own step a 1 to 3"])]


def test_nodes_with_clocks_of_their_own_stand_on_one(tmp_path: Path) -> None:
    write_run(tmp_path, OK, [hello(100.0, 0), event(101.0, "enter", 0, n=1), table(100.0)])
    later = [hello(5.0, 1), event(6.0, "enter", 1, n=1), table(5.0), event(7.0, "said", text="x")]
    other = [{**one, "wall": EPOCH + 98.0 + one["at"]} for one in later]
    write_run(tmp_path / "node-1", OK, other)
    found = read_timeline(read_run(tmp_path))
    assert [row.spans[0].start for row in found.rows] == pytest.approx([1.0, 4.0], abs=1e-5)
    assert found.length == pytest.approx(5.0, abs=1e-5)


def test_a_job_that_nobody_told_of_has_no_rows() -> None:
    assert read_timeline(run([], VERDICT)).rows == ()


KINDS = st.sampled_from(
    (
        *("hello", "enter", "phase", "call", "import", "reached", "arrive", "opened", "begin"),
        *("end", "await", "did", "pulse", "quiet", "finished", "bye", "ended", "verdict"),
        "taken back",
    )
)
VALUES = st.none() | st.integers(-3, 12) | st.text(max_size=3) | st.just("import x") | st.just([1])
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"t": KINDS, "at": st.floats(0, 100)},
        optional={
            **dict.fromkeys(("n", "name", "step", "k", "what", "call", "module"), VALUES),
            **dict.fromkeys(("instead_of", "pid", "seconds", "checkpoint", "numbers"), VALUES),
            "rank": st.integers(0, 2),
        },
    ),
    max_size=15,
)


@given(EVENTS)
@settings(max_examples=examples(60))
def test_whatever_is_told_spans_lie_in_one_another(events: Sequence[dict[str, Any]]) -> None:
    found = read_timeline(run(sorted(events, key=lambda one: one["at"]), VERDICT))
    for row in found.rows:
        for span in row.spans:
            assert span.end is None or span.start <= span.end <= found.length
            around = [one for one in row.spans if one.depth == span.depth - 1]
            assert not span.depth or any(
                one.start <= span.start and (one.end is None or span.start <= one.end)
                for one in around
            )
