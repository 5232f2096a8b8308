"""The table of which rank came how far."""

from __future__ import annotations

from hangbisect.report.issue_page import checkpoint_table
from hangbisect.report.run_reader.timeline import Kind, RankRow, Span, Timeline


def span(
    kind: Kind,
    name: str,
    start: float,
    end: float | None,
    depth: int = 0,
    number: int | None = None,
) -> Span:
    return Span(kind, name, name.title(), number, start, end, depth)


def table(*rows: tuple[Span, ...], ended: float | None = None) -> list[str]:
    found = tuple(RankRow(rank, "n03", spans, ended) for rank, spans in enumerate(rows))
    return checkpoint_table(Timeline(found, length=20.0)).splitlines()[2:]


def test_how_long_a_step_took_each_rank_and_who_is_still_in_it() -> None:
    script = span("step", "script", 0.0, 1.0, number=1)
    inside = span("step", "model", 1.0, None, number=2)
    hang = span("hang", "load", 5.0, None, 1)
    wait = span("wait", "for rank 1", 2.0, None, 1)
    assert table((script, inside, wait), (script, inside, hang), (script,)) == [
        "| 1 | `Script` | 1.0 s | 1.0 s | 1.0 s |",
        "| 2 | `Model` | waits 19 s | **hangs** 19 s |  |",
    ]


def test_the_same_step_again_is_added_up() -> None:
    steps = (span("own step", "barrier", 0.0, 1.0), span("own step", "barrier", 3.0, 5.0))
    (row,) = table(steps)
    assert row.startswith("|  | `Barrier` | 3.0 s (")
    assert "2" in row


def test_phases_lie_below_their_step() -> None:
    step, phase = span("step", "training", 0.0, None, number=12), span("phase", "fit", 1.0, 2.0, 1)
    assert table((step, phase)) == [
        "| 12 | `Training` | in it 20 s |",
        "|  | · `Fit` | 1.0 s |",
    ]


def test_a_hang_between_two_steps_has_a_row() -> None:
    done = span("own step", "load", 0.0, 1.0)
    assert table((done, span("hang", "time.sleep", 2.0, None)), (done,))[1:] == [
        "|  | between two steps | **hangs** 18 s |  |"
    ]


def test_of_many_ranks_those_that_did_the_same_are_together() -> None:
    done, late = span("step", "a", 0.0, 1.0, number=1), span("step", "a", 0.0, None, number=1)
    assert table(*[(done,)] * 7, (late,), (late, span("hang", "x", 1.0, None, 1))) == [
        "| 1 | `A` | 7 of 9 | 1.0 s | in it: 7; **hangs**: 8 |"
    ]


def test_who_left_and_who_never_began_are_told_apart() -> None:
    done = span("step", "a", 0.0, 1.0, number=1)
    assert table(*[(done,)] * 8, ())[0].endswith("| not begun: 8 |")
    assert table(*[(done,)] * 8, (), ended=3.0)[0].endswith("| left: 8 |")


def test_where_nobody_told_of_a_step_there_is_no_table() -> None:
    assert checkpoint_table(Timeline()) == ""
