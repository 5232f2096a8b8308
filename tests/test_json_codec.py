"""JSON to dataclasses and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from hangbisect.base.identity import RankId, UnknownRank
from hangbisect.base.json_codec import Misfit, fit_json, from_json, to_json
from hangbisect.base.schema_types import INSIDE


@dataclass(frozen=True)
class Part:
    number: int
    kind: Literal["good", "other"] = "good"
    share: Annotated[float, ("minimum", 0)] = 0.0


@dataclass(frozen=True)
class Whole:
    name: str
    parts: tuple[Part, ...]
    pair: tuple[str, str] | None = None
    by_name: Mapping[str, bool] = field(default_factory=dict)
    try_: str = ""
    known: int = field(default=7, metadata=INSIDE)
    schema: Literal[1] = 1


WHOLE = Whole("a", (Part(1), Part(2, "other", 0.5)), ("b", "c"), {"d": True}, "e")


def test_what_is_written_is_read_as_it_was() -> None:
    written = json.loads(json.dumps(to_json(WHOLE)))
    assert from_json(Whole, written) == WHOLE
    assert [*written] == ["schema", "name", "parts", "pair", "by_name", "try"]


def test_what_is_new_is_passed_over_and_what_is_not_there_has_its_default() -> None:
    data = {"name": "a", "parts": [{"number": 1, "new": {}}], "newer": 3, "known": 8}
    assert from_json(Whole, data) == Whole("a", (Part(1),))


WRONG = {
    "name": 1,
    "parts": [{"number": "x"}, 7, {"kind": "bad"}, {"number": 4, "share": float("nan")}],
    "pair": ["b"],
    "by_name": {"d": 1, "e": False},
}


def test_all_that_does_not_fit_is_told_with_its_place() -> None:
    with pytest.raises(Misfit) as caught:
        from_json(Whole, WRONG)
    assert [": ".join(one) for one in caught.value.wrong] == [
        ".name: a text was expected, found 1",
        ".parts[0].number: a whole number was expected, found 'x'",
        ".parts[1]: an object was expected, found 7",
        ".parts[2].number: is missing",
        ".parts[2].kind: one of good, other was expected, found 'bad'",
        ".parts[3].share: a number was expected, found nan",
        ".pair: a list of 2 was expected, found a list",
        ".by_name.d: true or false was expected, found 1",
    ]
    assert str(caught.value) == (
        "name: a text was expected, found 1; parts[0].number: a whole number was expected, found "
        "'x'; parts[1]: an object was expected, found 7; and 5 more"
    )


def test_what_fits_is_kept_beside_what_does_not() -> None:
    found, wrong = fit_json(Whole, WRONG)
    assert found == Whole("", (Part(0), Part(0), Part(4)), None, {"e": False})
    assert wrong.endswith("and 5 more")
    assert fit_json(Whole, to_json(WHOLE)) == (WHOLE, "")
    assert fit_json(Whole, None)[0] == Whole("", ())


@dataclass(frozen=True)
class Named:
    rank: RankId
    other: RankId | None = None
    more: tuple[RankId, ...] = ()


def test_a_rank_is_its_number_or_its_process() -> None:
    named = Named(UnknownRank("n2", 712), 3, (0, UnknownRank("", 7)))
    written = {"rank": "? (pid 712 on n2)", "other": 3, "more": [0, "? (pid 7)"]}
    assert to_json(named) == written
    assert from_json(Named, written) == named
    assert from_json(Named, {"rank": 1, "other": None}) == Named(1)


def test_what_is_no_rank_is_left_out() -> None:
    found, wrong = fit_json(Named, {"rank": "x", "other": True, "more": ["?", 2]})
    assert found == Named(0, None, (2,))
    assert wrong == (
        "rank: a rank was expected, found 'x'; other: a rank was expected, found true; more[0]: a "
        "rank was expected, found '?'"
    )


@pytest.mark.parametrize("value", [True, 1 << 64, 0.5, "1", None, [], {}])
def test_what_is_no_whole_number_is_none(value: Any) -> None:
    with pytest.raises(Misfit, match="number: a whole number was expected"):
        from_json(Part, {"number": value})


def test_a_whole_number_is_a_number_and_a_bool_is_none() -> None:
    assert from_json(Part, {"number": 1, "share": 1}) == Part(1, share=1.0)
    with pytest.raises(Misfit, match="share: a number was expected, found true"):
        from_json(Part, {"number": 1, "share": True})


@dataclass(frozen=True)
class Renamed:
    """A type with a field that had another name in files of an older version."""

    leaves_early: bool = field(default=False, metadata={"older": "goes"})


def test_a_field_is_read_by_the_name_that_an_older_version_gave_it() -> None:
    """Run folders outlive the version that wrote them."""
    assert from_json(Renamed, {"goes": True}) == Renamed(True)
    assert from_json(Renamed, {"goes": True, "leaves_early": False}) == Renamed(False)
    assert to_json(Renamed(True)) == {"leaves_early": True}
