"""What came of each input: as a table, a line, and JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hangbisect.pipelines.replay_inputs import (
    Result,
    format_difference,
    format_summary,
    format_table,
    results_as_data,
    select_telling,
)
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20
RESULTS = st.lists(
    st.builds(
        Result,
        name=st.text(max_size=3),
        captured_on=st.integers(0, 9),
        tokens=st.integers(0, 1 << 20),
        forward_s=st.just(0.0) | st.floats(1e-9, 1e6),
        backward_s=st.none() | st.floats(0, 1e6),
        difference=st.none() | st.floats(0, math.inf),
        raised=st.sampled_from(["", "ValueError: no"]),
    ),
    max_size=100,
)


def result(name: str = "one", forward_s: float = 0.5, **more: Any) -> Result:
    return Result(**{"tokens": 0, "captured_on": 0, "name": name, "forward_s": forward_s, **more})


def many(**at: Result) -> list[Result]:
    """Return 100 results, of which those by name are others."""
    return [at.get(f"n{n}", result(f"n{n}", 0.1, difference=1e-6)) for n in range(100)]


def test_of_many_the_failed_the_slowest_and_the_most_different_are_shown_in_order() -> None:
    told = (
        result("n0", 0.1, first=True),
        result("n50", 0.1, raised="ValueError: no"),
        result("n70", 9.0),
        result("n90", 0.1, difference=math.inf),
        result("n99", 0.1, difference=2.0),
    )
    shown = select_telling(many(**{one.name: one for one in told}))
    assert len(shown) <= 40
    assert [one for one in shown if one in told] == list(told)
    lines = format_table(many(**{one.name: one for one in told}))
    assert lines[-1] == f"and {100 - len(shown)} more; all of them in the JSON file"
    assert len(lines) == 1 + len(shown) + 1


def test_a_few_are_all_shown() -> None:
    few = many()[:40]
    assert select_telling(few) == few
    assert "more" not in format_table(few)[-1]


def test_of_a_hundred_failures_there_is_room_for_what_was_slow() -> None:
    shown = select_telling(
        [result(f"n{n}", 9.0 if n == 99 else 0.1, raised="no") for n in range(100)]
    )
    assert shown[-1].name == "n99"
    assert len(shown) <= 40


@given(RESULTS)
def test_no_more_than_forty_are_shown_and_each_once(results: list[Result]) -> None:
    shown = select_telling(results)
    assert len(shown) <= 40
    places = [next(at for at, one in enumerate(results) if one is told) for told in shown]
    assert places == sorted(set(places))


@given(RESULTS)
def test_all_of_it_is_json_without_infinity(results: list[Result]) -> None:
    data = results_as_data(results, {"compile": "off"}, 3, 1.5)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert (data["rank"], data["seconds"], len(data["inputs"])) == (3, 1.5, len(results))


def test_infinity_is_a_text_in_json() -> None:
    (one,) = results_as_data([result(difference=math.inf, tokens=100)], {}, 0, 1.0)["inputs"]
    assert one["difference"] == "inf"
    assert one["tokens_a_second"] == 200.0
    assert one["name"] == "one"


def test_columns_without_values_are_left_out() -> None:
    head, row = format_table([result(memory_bytes=3 * MIB)])
    assert head.split() == ["input", "forward", "peak"]
    assert row.split() == ["one", "0.500", "s", "3", "MiB"]


def test_a_column_stays_where_one_input_has_a_value() -> None:
    results = [
        result("first", 2.0, tokens=1024, backward_s=4.0, difference=3.1e-6),
        result("second", 0.25, tokens=1024, raised="RuntimeError: no"),
        result("third", 0.25),
    ]
    head, first, second, third = format_table(results)
    assert head.split() == [
        *("input", "tokens", "forward", "backward", "tokens/s", "peak", "difference")
    ]
    assert first.split() == [
        *("first", "1,024", "2.000", "s", "4.000", "s", "512", "0", "bytes", "3.1e-06")
    ]
    assert "failed" in second
    assert third.split() == ["third", "-", "0.250", "s", "-", "-", "0", "bytes", "-"]


def test_no_number_is_cut_beside_a_long_name() -> None:
    name = f"{'Long' * 15}-rank0-20261122T140951.924718"
    head, row = format_table([result(name, 0.25, tokens=1024, backward_s=4.0, difference=3.1e-6)])
    assert head.split()[4:] == ["tokens/s", "peak", "difference"]
    assert row.startswith(name)
    assert row.endswith("3.1e-06")


def test_what_failed_has_no_speed() -> None:
    assert result(tokens=1024, raised="ValueError: no").tokens_a_second is None


def test_a_line_says_all_that_is_known() -> None:
    known = result(tokens=1000, backward_s=40.0, memory_bytes=2 * MIB, difference=0.25)
    assert known.in_words() == (
        "forward 0.500 s, backward 40.0 s, 0.7 min, 2,000 tokens/s, peak 2 MiB, "
        "differs by 2.5e-01 (output)"
    )
    assert result(difference=0.0, differs_in="loss").in_words().endswith("differs by 0 (loss)")
    assert result(raised="ValueError: no").in_words() == (
        "forward 0.500 s, peak 0 bytes, ValueError: no"
    )


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (3.14e-6, "3.1e-06"), (math.inf, "inf"), (12.0, "1.2e+01")]
)
def test_a_number_is_short(value: float, text: str) -> None:
    assert format_difference(value) == text


def test_the_first_forward_is_told_apart_from_the_later_ones() -> None:
    results = [result("a", 9.0, first=True), *(result(f"b{n}", n / 10) for n in (1, 2, 6))]
    assert format_summary(results) == (
        "4 inputs replayed, the first forward 9.0 s, later ones 0.200 s (median)"
    )


def test_what_failed_is_counted_and_not_timed() -> None:
    results = [result(first=True, raised="no"), result(forward_s=1.0, difference=0.5)]
    assert format_summary(results) == (
        "2 inputs replayed, 1 failed, later ones 1.0 s (median), the largest difference 5.0e-01"
    )
    assert format_summary([result(first=True, raised="no")]) == "1 input replayed, 1 failed"
