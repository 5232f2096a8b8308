"""Which settings differ: variables, versions, Python and machine of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...rank.masking import MASK
from ..kept.run import KeptRun
from ..kept.told import ByRank, at_the_start, machines, said, variables, versions
from .found import Difference, Topic
from .noise import is_of_a_start, same_value

_Named = Mapping[str, ByRank]
_OF_PYTHON = ("python", "executable")


@dataclass
class Settings:
    """What differs, and how much of each topic is the same."""

    differing: list[Difference] = field(default_factory=list)
    same: dict[str, int] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)  # masked, so that nobody can compare them


def setting_differences(a: KeptRun, b: KeptRun) -> Settings:
    """Return what of their settings ranks of the same number have otherwise in two runs."""
    found = Settings()
    ones, others = _without_what_is_of_a_start(a), _without_what_is_of_a_start(b)
    _compare(found, "environment", _common(ones, others, a, b), _common(others, ones, b, a))
    ones, others = versions(a), versions(b)
    _compare(found, "versions", _reached(ones, others, b), _reached(others, ones, a))
    _compare(found, "python", said(a, _OF_PYTHON), said(b, _OF_PYTHON))
    _compare(found, "machine", machines(a), machines(b))
    return found


def differing(topic: Topic, name: str, a: ByRank, b: ByRank) -> Iterator[Difference]:
    """Yield a difference for each two values that ranks of the same number have."""
    common = sorted(set(a) & set(b) if a and b else {*a, *b})
    pairs: dict[tuple[str, str], list[int]] = {}
    for rank in common:
        one, other = a.get(rank, ""), b.get(rank, "")
        if not same_value(name, one, other):
            pairs.setdefault((one, other), []).append(rank)
    for (one, other), ranks in pairs.items():
        yield Difference(topic, name, one, other, tuple(ranks) if len(ranks) < len(common) else ())


def _compare(found: Settings, topic: Topic, ones: _Named, others: _Named) -> None:
    for name in sorted(ones.keys() | others.keys()):
        differences = list(differing(topic, name, ones.get(name, {}), others.get(name, {})))
        found.differing += differences
        if not differences:
            found.same[topic] = found.same.get(topic, 0) + 1
            if _is_masked(ones.get(name, {})):
                found.hidden.append(name)


def _is_masked(values: ByRank) -> bool:
    return any(value.startswith(MASK) for value in values.values())


# ---- what a start that stopped did not come to ---------------------------------------------------


def _without_what_is_of_a_start(run: KeptRun) -> dict[str, ByRank]:
    return {name: them for name, them in variables(run).items() if not is_of_a_start(name)}


def _reached(ones: _Named, others: _Named, other: KeptRun) -> _Named:
    """Return the versions of one run without those of libraries that the `other`, which stopped,
    never came to import.
    """
    if other.outcome == "ok":
        return ones
    return {name: them for name, them in ones.items() if name in others}


def _common(ones: _Named, others: _Named, run: KeptRun, other: KeptRun) -> _Named:
    """Return the variables of one run without those that it set on the way, and the `other`, which
    stopped, did not.
    """
    if other.outcome == "ok":
        return ones
    from_the_start = at_the_start(run)
    return {
        name: them
        for name, them in ones.items()
        if name in from_the_start or any(others.get(name, {}).values())
    }
