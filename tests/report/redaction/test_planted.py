"""60 secrets of 20 kinds and more are all masked; of 200 harmless texts at most 2 are."""

from __future__ import annotations

import shlex

import pytest
from hangbisect.report.redaction import Redactor
from planted import Planted, lookalikes, planted

SEEDS = (1, 2, 3)


def test_the_lists_are_as_long_as_they_should_be() -> None:
    assert len(list(planted())) >= 60
    assert len({one.kind for one in planted()}) >= 20
    assert {one.place for one in planted()} == {
        *("environment", "argv", "URL", "locals", "log", "file name")
    }
    assert len(list(lookalikes())) >= 200


@pytest.mark.parametrize("seed", SEEDS)
def test_every_planted_secret_is_masked_where_it_stands_alone(seed: int) -> None:
    assert [one for one in planted(seed) if shown(one)] == []


def shown(one: Planted) -> list[str]:
    """Return the lines of a secret that a redactor of its own shows, however it is asked."""
    ways = [Redactor().text(one.text), Redactor().name(one.text)]
    ways.append(str(Redactor().json({"said": [one.text]})))
    if one.place == "environment":
        name, _, value = one.text.partition("=")
        ways += [Redactor().value(name, value), str(Redactor().json({name: value}))]
    if one.place == "argv":
        ways.append(str(Redactor().command(shlex.split(one.text))))
        ways.append(str(Redactor().json({"command": shlex.split(one.text)})))
    lines = [part for part in one.secret.replace("\\n", "\n").split("\n") if "-----" not in part]
    return [line for line in lines if any(line in text for text in ways)]


@pytest.mark.parametrize("seed", SEEDS)
def test_of_200_harmless_texts_at_most_2_are_masked(seed: int) -> None:
    masked = [text for text in lookalikes(seed) if Redactor().text(text) != text]
    assert len(masked) <= 2, masked


@pytest.mark.parametrize("seed", SEEDS)
def test_one_redactor_for_all_masks_no_more_of_the_harmless_ones(seed: int) -> None:
    redactor = Redactor()
    for one in planted(seed):
        redactor.learn(one.text)
    masked = [text for text in lookalikes(seed) if redactor.text(text) != text]
    assert len(masked) <= 2, masked
