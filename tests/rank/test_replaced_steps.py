"""How a function of the user's own is called."""

from __future__ import annotations

from typing import Any

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.rank.walk import takes_one_argument


class Net:
    """Has a constructor without arguments."""


def two(one: Any, other: Any) -> None:
    """Take two."""


@pytest.mark.parametrize(
    ("function", "one"),
    [
        (lambda given: given, True),
        (lambda given=None: given, True),
        (lambda *words: words, True),
        (dict, True),
        (lambda: None, False),
        (Net, False),
        (lambda *, size=3: size, False),
    ],
)
def test_it_gets_what_a_step_gives_if_it_can_take_that(function: Any, one: bool) -> None:
    assert takes_one_argument(function, "net:build") is one


def test_one_that_can_be_called_in_neither_way_is_named_with_what_it_takes() -> None:
    with pytest.raises(UsageError, match=r"net:two takes \(one: .*, other: .*\)"):
        takes_one_argument(two, "net:two")
