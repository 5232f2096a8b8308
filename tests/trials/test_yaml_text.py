"""YAML as text with lines, and what is refused."""

from __future__ import annotations

import pytest
from hangbisect.trials.yaml_text import DEEPEST, LARGEST, UnreadableYaml, read_yaml


def refused(text: str) -> tuple[int, str]:
    with pytest.raises(UnreadableYaml) as error:
        read_yaml(text)
    return error.value.line, error.value.fact


def test_every_value_stays_the_text_that_was_written() -> None:
    text = "{wandb: off, start: 1:30, count: 010, share: 1e3, day: 2026-11-21, yes: [true, 'x']}"
    assert read_yaml(text).value == {
        "wandb": "off",
        "start": "1:30",
        "count": "010",
        "share": "1e3",
        "day": "2026-11-21",
        "yes": ["true", "x"],
    }


def test_nothing_a_tilde_and_null_are_none_and_their_quoted_forms_are_not() -> None:
    assert read_yaml("a:\nb: ~\nc: null\nd: ''\ne: '~'").value == {
        "a": None,
        "b": None,
        "c": None,
        "d": "",
        "e": "~",
    }


def test_every_key_and_value_has_its_line() -> None:
    found = read_yaml("a: 1\nb:\n  - c: 2\n  - d:\n      3\n")
    assert found.line(("a",)) == 1
    assert found.line(("b", 0, "c"), of_key=True) == 3
    assert found.line(("b", 1, "d"), of_key=True) == 4
    assert found.line(("b", 1, "d")) == 5
    assert found.line(("b", 1, "nowhere", 7)) == 4


@pytest.mark.parametrize(
    "text",
    ["!!python/object/apply:os.system ['true']", "a: !env HOME", "a: !!binary aGk=", "!!map {}"],
)
def test_tags_are_refused(text: str) -> None:
    line, fact = refused(text)
    assert line == 1
    assert "tags are not read" in fact


def test_what_an_alias_stands_for_is_counted_each_time() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases counted" in refused("\n".join(["a0: &a0 [x, x]", *levels]))[1]


def test_an_alias_inside_what_it_names_is_refused() -> None:
    assert f"more than {DEEPEST} deep" in refused("a: &a [*a]")[1]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "&a ["])
def test_what_is_nested_for_ever_is_refused_at_once(opening: str) -> None:
    refused(opening * 50_000)


def test_a_text_that_is_too_long_is_refused_unread() -> None:
    assert "characters; at most" in refused("a" * (LARGEST + 1))[1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: c: d\n", 2),
        ("a:\n\t- b", 2),
        ("a: 1\n\n\x01", 3),
        ("a: 'b\nc", 2),
        ("a: *b", 1),
        ("a: 1\n--- \nb: 2", 2),
        ("%YAML " + "9" * 5000 + ".1\n---\na", 1),
        ("", 1),
        ("# nothing but a comment", 1),
        ('a: "\\0"', 1),
        ('a: 1\nb: "\\ud800"', 2),
        ("[a, b]: 1", 1),
        (": 1", 1),
    ],
)
def test_what_is_no_yaml_of_ours_is_refused_with_its_line(text: str, line: int) -> None:
    assert refused(text)[0] == line


def test_a_key_that_is_there_twice_names_both_lines() -> None:
    assert refused("a: 1\nb: 2\na: 3") == (3, "the key 'a' is there twice, first in line 1")
