"""The numbers that programs have among their arguments: which of several each of them is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hangbisect.base.command_words import Numbering, number_programs
from hypothesis import given
from hypothesis import strategies as st


def commands(text: str, numbers: Sequence[int]) -> list[list[str]]:
    return [text.replace("%", str(number)).split() for number in numbers]


@pytest.mark.parametrize(
    ("text", "by_flag"),
    [
        ("python worker.py --process-id=%", True),
        ("python worker.py --process_id % --of 4", True),
        ("python -u worker.py --rank %", True),
        ("python worker.py --local_rank=% --device cuda:%", True),
        ("python -m jobs.worker --worker %", True),
        ("python worker.py %", False),
        ("python worker.py --seed %", False),
        ("python worker.py --fold=% --out runs/fold%", False),
        ("python worker.py --port 80% --shard %", False),
    ],
)
def test_programs_alike_but_for_their_number(text: str, by_flag: bool) -> None:
    assert number_programs(commands(text, (2, 0, 1))) == Numbering((2, 0, 1), by_flag)


@pytest.mark.parametrize(
    "several",
    [
        commands("python worker.py --rank %", (0,)),  # one alone
        commands("python worker.py --rank %", (0, 0)),
        commands("python worker.py --rank %", (1, 3)),
        commands("python worker.py --port %", (29500, 29501)),
        [["python", "worker.py", "0"], ["python", "server.py", "1"]],
        [["python", "worker.py", "0"], ["python", "worker.py", "1", "--verbose"]],
        [["sleep", "0"], ["sleep", "1"]],
        # Which of the two is its own?
        [["python", "pair.py", "0", "1"], ["python", "pair.py", "1", "0"]],
    ],
)
def test_others_have_none(several: list[list[str]]) -> None:
    assert number_programs(several) is None


def test_of_two_places_the_one_with_the_flag_of_a_rank_counts() -> None:
    several = [
        ["python", "w.py", "--peer=1", "--rank=0"],
        ["python", "w.py", "--peer=0", "--rank=1"],
    ]
    assert number_programs(several) == Numbering((0, 1), True)


def test_the_numbers_of_those_that_have_ended_are_left_out() -> None:
    left = commands("python worker.py --rank %", (0, 1, 3))
    assert number_programs(left, others=1) == Numbering((0, 1, 3), True)
    assert number_programs(left) is None


def number(command: str, *variables: dict[str, str] | None) -> Numbering | None:
    return number_programs([command.split()] * len(variables), environs=variables)


def test_a_variable_may_give_the_number() -> None:
    parts = ({"PART": "0", "HOME": "/root"}, {"PART": "1", "HOME": "/root"})
    assert number("python train.py", *parts) == Numbering((0, 1), False)
    workers = ({"WORKER_ID": "1", "SHLVL": "2"}, {"WORKER_ID": "0", "SHLVL": "2"})
    assert number("python train.py --epochs 3", *workers) == Numbering((1, 0), True)


def test_a_variable_that_is_no_number_of_a_program_tells_nothing() -> None:
    gpus = ({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"})
    assert number("python train.py", *gpus) is None  # two runs, each on a GPU of its own
    assert number("python train.py", {"PART": "0"}, {}) is None
    assert number("python train.py", {"PART": "0"}, None) is None
    assert number("python train.py", {"NAME": "part0"}, {"NAME": "part1"}) is None
    assert number("python train.py", {"PORT": "29500"}, {"PORT": "29501"}) is None


def test_a_variable_and_an_argument_may_not_contradict_one_another() -> None:
    several = commands("python train.py %", (0, 1))
    assert number_programs(several, environs=({"A": "0"}, {"A": "1"}))
    assert number_programs(several, environs=({"A": "1"}, {"A": "0"})) is None


@given(st.lists(st.lists(st.text(max_size=6), max_size=5), max_size=5), st.integers(0, 3))
def test_whatever_the_words_are_numbers_are_those_of_their_places(
    several: list[list[str]], others: int
) -> None:
    told = number_programs(several, others)
    if told is not None:
        assert len(told.numbers) == len({*told.numbers}) == len(several)
        assert max(told.numbers) < len(several) + others
