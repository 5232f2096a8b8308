"""A user's own toggle: arguments or environment of their script."""

from __future__ import annotations

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.toggles.command_toggles import (
    apply_setting,
    find_usable_toggles,
    format_command,
    values_as_run,
)
from hangbisect.toggles.table import TOGGLES
from hangbisect.toggles.toggle import own_toggle
from hypothesis import given
from hypothesis import strategies as st

THEIRS = ("torchrun", "--nproc_per_node=2", "train.py", "--lr", "0.1")

CACHE = own_toggle(
    "cache",
    words={"on": (), "small": ("--cache-size", "1"), "off": ("--no-cache",)},
    environment={"off": {"MY_CACHE": "0"}},
    help="the cache of the loader",
)
HYDRA = own_toggle("devices", words={"all": (), "one": ("trainer.devices=1", "trainer.nodes=1")})


def test_a_users_own_toggle_puts_its_words_at_the_end() -> None:
    table = (*TOGGLES, CACHE, HYDRA)
    small = apply_setting((*THEIRS, "--cache-size=9", "--no-cache"), {"cache": "small"}, table)
    assert small.command == (*THEIRS, "--cache-size", "1")
    off = apply_setting(small.command, {"cache": "off", "devices": "one"}, table)
    assert format_command(off) == (
        "MY_CACHE=0 torchrun --nproc_per_node=2 train.py --lr 0.1 --no-cache "
        "trainer.devices=1 trainer.nodes=1"
    )
    assert values_as_run(off.command, off.environment, table)["cache"] == "off"
    assert values_as_run(THEIRS, {}, table)["cache"] == "on"
    assert {t.name for t in find_usable_toggles(THEIRS, {}, (CACHE, HYDRA))[0]} == {
        "cache",
        "devices",
    }


def test_the_first_value_is_as_it_is_run_where_nothing_of_the_toggle_is_there() -> None:
    with_words = own_toggle("cache", words={"with": ("--cache",), "none": ("--no-cache",)})
    by_variable = own_toggle("c", words={}, environment={"with": {"C": "1"}, "none": {"C": "0"}})
    assert values_as_run(THEIRS, {}, (with_words, by_variable)) == {"cache": "with", "c": "with"}
    assert [t.values for t in find_usable_toggles(THEIRS, {}, (with_words,))[0]] == [
        ("with", "none")
    ]
    size = own_toggle("size", words={"large": ("--size=9",), "small": ("--size=1",)})
    assert values_as_run((*THEIRS, "--size", "5"), {"C": "7"}, (size, by_variable)) == {}


def test_words_that_replace_nothing_one_could_name_are_refused() -> None:
    with pytest.raises(UsageError, match="begin with a flag"):
        own_toggle("x", words={"on": (), "off": ("plain",)})
    with pytest.raises(UsageError, match="two at least"):
        own_toggle("x", words={"on": ()})


CHUNKS = st.sampled_from([("--a", "1"), ("--a", "2"), ("--b",), ("-c", "x", "-3"), ("k=v",)])


@given(st.lists(CHUNKS, min_size=1, max_size=3, unique_by=lambda c: c[0]), st.lists(CHUNKS))
def test_the_words_of_a_users_own_toggle_are_there_once_however_often_it_is_applied(
    off: list[tuple[str, ...]], before: list[tuple[str, ...]]
) -> None:
    words = [word for chunk in off for word in chunk]
    table = (own_toggle("mine", words={"on": (), "off": words}),)
    command = (*THEIRS, *(word for chunk in before for word in chunk))
    once = apply_setting(command, {"mine": "off"}, table)
    assert apply_setting(once.command, {"mine": "off"}, table) == once
    assert once.command[: len(THEIRS)] == THEIRS
    assert once.command[len(once.command) - len(words) :] == tuple(words)
    assert values_as_run(once.command, {}, table)["mine"] == "off"
    others = [chunk for chunk in before if chunk[0] not in {taken[0] for taken in off}]
    kept = once.command[len(THEIRS) : len(once.command) - len(words)]
    assert kept == tuple(word for chunk in others for word in chunk)
