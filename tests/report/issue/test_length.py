"""What GitHub counts, and what is cut first."""

from __future__ import annotations

from hangbisect.report.issue_sections import (
    MOST_CHARACTERS,
    Section,
    count_characters,
    fit_sections,
)


def test_all_ways_to_count_are_covered() -> None:
    assert count_characters("ab\n") == 4  # a browser sends a line break as two
    assert count_characters("\U0001f600") == 2  # and counts it as two
    assert count_characters("é") == 1


def test_what_fits_is_left_as_it_is() -> None:
    text, left_out = fit_sections([Section("a", 1, "the a"), Section("b", 2, "the b")])
    assert (text, left_out) == ("a\n\nb", ())


def test_the_least_useful_goes_first_and_is_named() -> None:
    long = "x" * 30_000
    found = [
        Section("head", 100, ""),
        Section(long, 20, "worth 20"),
        Section(long, 10, "worth 10, the first"),
        Section(long, 10, "worth 10, the second", "short"),
        Section("also long" * 1000, 50, "worth 50"),
    ]
    text, left_out = fit_sections(found)
    assert left_out == ("worth 10, the second", "worth 10, the first")
    assert text == f"head\n\n{long}\n\nshort\n\n{'also long' * 1000}"
    assert count_characters(text) <= MOST_CHARACTERS
