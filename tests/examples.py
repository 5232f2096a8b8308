"""On how much a test is tried: examples of Hypothesis, entries of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")


def examples(whole: int) -> int:
    """Return `whole`; in the profile `quick` the part of it that other tests take there too."""
    return max(1, whole * settings().max_examples // 100)


def for_each(
    entries: Sequence[T], name: Callable[[T], str]
) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Return what makes one test of a check that holds of each entry of a table; where it fails,
    the entry is named.

    For checks that take no time: a test for each entry takes longer to be handed to a worker, and
    each worker has to find all of them.
    """

    def make_test(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            for entry in entries:
                try:
                    check(entry)
                except Exception as error:
                    error.add_note(f"This is of {name(entry)}.")
                    raise

        test.__name__, test.__doc__, test.__module__ = (
            check.__name__,
            check.__doc__,
            check.__module__,
        )
        return test

    return make_test
