"""What arguments may be: each reader takes what it says, and names flag, value and rule else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base import argument_types
from hangbisect.base.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = {
    "positive": argument_types.positive("--x"),
    "not_negative": argument_types.not_negative("--x"),
    "share": argument_types.share("--x"),
}


@pytest.mark.parametrize(
    ("reader", "good", "bad"),
    [
        ("positive", ["1", "0.5", "1e3"], ["0", "-1", "nan", "inf", "x", ""]),
        ("not_negative", ["0", "0.0", "7"], ["-0.1", "nan", "inf", "x"]),
        ("share", ["0.5", "1e-3"], ["0", "1", "1.5", "-0.5", "nan", "half"]),
    ],
)
def test_numbers_are_taken_in_their_range(reader: str, good: list[str], bad: list[str]) -> None:
    read = NUMBERS[reader]
    assert [read(one) for one in good] == [float(one) for one in good]
    for one in bad:
        with pytest.raises(UsageError, match="--x cannot be") as raised:
            read(one)
        assert repr(one) in str(raised.value)


@given(st.floats() | st.integers())
def test_whatever_is_taken_is_in_its_range(number: float) -> None:
    ranges = {"positive": number > 0, "not_negative": number >= 0, "share": 0 < number < 1}
    for name, is_inside in ranges.items():
        if is_inside and abs(number) < float("inf"):
            assert NUMBERS[name](repr(number)) == float(number)
        else:
            with pytest.raises(UsageError):
                NUMBERS[name](repr(number))


def test_a_count_is_made_of_the_digits_that_anybody_types() -> None:
    read = argument_types.count("--repeat", 2)
    assert read("2") == 2
    for one in ("1", "-2", "2.0", "²", "٣", ""):
        with pytest.raises(UsageError, match="it is a whole number from 2"):
            read(one)


def test_a_choice_names_what_is_allowed_and_the_nearest() -> None:
    read = argument_types.choice("--on-hang", ("stop", "leave", "kill"))
    assert read("leave") == "leave"
    with pytest.raises(UsageError, match="one of stop, leave, kill; did you mean 'leave'"):
        read("leav")


@pytest.mark.parametrize(
    ("text", "pair"), [("A=b", ("A", "b")), ("A_B1=", ("A_B1", "")), ("A=b=c", ("A", "b=c"))]
)
def test_an_assignment_ends_its_name_at_the_first_sign(text: str, pair: tuple[str, str]) -> None:
    assert argument_types.assignment("--in")(text) == pair


@pytest.mark.parametrize("text", ["A", "=b", "A B=c", "A-B=c", "A=\0"])
def test_no_variable_can_have_such_a_name_or_value(text: str) -> None:
    with pytest.raises(UsageError, match="it is NAME=VALUE"):
        argument_types.assignment("--in")(text)


def test_seconds_may_have_the_name_of_a_step() -> None:
    read = argument_types.named_seconds("--timeout")
    assert read("30") == ("", 30.0)
    assert read("wandb_logger=2.5") == ("wandb_logger", 2.5)
    with pytest.raises(UsageError, match="'0'"):
        read("wandb_logger=0")


@pytest.mark.parametrize("text", ["save=shop.io:save_now", "a step=m:f"])
def test_a_replacement_is_a_step_and_a_function(text: str) -> None:
    step, _, place = text.partition("=")
    assert argument_types.replacement("--replace")(text) == (step, place)


@pytest.mark.parametrize("text", ["", "save", "save=m", "=m:f", "save=m.:f", "save=m:f.g", "s=1:f"])
def test_what_no_import_would_find_is_no_replacement(text: str) -> None:
    with pytest.raises(UsageError, match="it is STEP=module:function"):
        argument_types.replacement("--replace")(text)


def test_a_function_may_be_a_method_and_a_wrong_one_comes_with_a_way_out() -> None:
    read = argument_types.function("--step")
    assert read("train.loop:Trainer.fit") == "train.loop:Trainer.fit"
    with pytest.raises(UsageError) as raised:
        read("train.py")
    assert "hangbisect.step" in (raised.value.help or "")


KNOWN = {
    "checkpoint": 4,
    "phase": "init",
    "stacks": [[["/a/train.py", "load"], ["/a/train.py", "main"]]],
    "still": 30,
}


def test_a_known_hang_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    path.write_text(json.dumps(KNOWN))
    assert argument_types.known_hang("--known")(str(path)) == {
        "checkpoint": 4,
        "phase": "init",
        "file": str(path),
        "stacks": [[("/a/train.py", "load"), ("/a/train.py", "main")]],
        "still": 30.0,
    }


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        "text",
        {**KNOWN, "stacks": 3},
        {**KNOWN, "stacks": [["a"]]},
        {**KNOWN, "still": "soon"},
        {**KNOWN, "still": None},
    ],
)
def test_a_file_of_another_kind_is_no_known_hang(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "known.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="a JSON object with checkpoint"):
        argument_types.known_hang("--known")(str(path))
    path.write_text("{")
    with pytest.raises(UsageError, match="a JSON object with checkpoint"):
        argument_types.known_hang("--known")(str(path))
    with pytest.raises(UsageError, match="No such file"):
        argument_types.known_hang("--known")(str(tmp_path / "none"))
