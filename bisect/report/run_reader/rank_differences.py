"""What a run has of each of its ranks, by name and rank; and what differs between the ranks, and
only that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ...base.events import Hello, Import
from ...base.identity import RankId, parse_rank
from ...base.lazy_dataclass import dataclass
from ...base.rank_facts import RankFacts
from .run import RecordedRun
from .run_files import JobEnvironment

ByRank = Mapping[RankId, str]


def hello_fields(run: RecordedRun, names: Sequence[str]) -> dict[str, ByRank]:
    """Return fields of the ranks' greetings."""
    found: dict[str, dict[RankId, str]] = {}
    for part in run.everywhere:
        for event in part.events:
            if isinstance(event, Hello) and event.rank is not None:
                for name in names:
                    if word := getattr(event, name):
                        found.setdefault(name, {})[event.rank] = word
    return {**found}


def initial_variables(run: RecordedRun) -> set[str]:
    """Return the names of the variables that any rank had when it began."""
    names: set[str] = set()
    for part in run.everywhere:
        for event in part.events:
            if isinstance(event, Hello):
                names |= event.environment.keys()
    return names


def _read_rank(name: str) -> RankId:
    """Return the rank that a name in environment.json is."""
    rank = parse_rank(name)
    assert rank is not None  # others are not read from the file
    return rank


def rank_variables(run: RecordedRun) -> dict[str, ByRank]:
    """Return the variables that matter; "" where a rank has none of that name."""
    found: dict[str, dict[RankId, str]] = {}
    every: list[RankId] = []
    for part in run.everywhere:
        for word, own in _list_environment(part).ranks.items():
            rank = _read_rank(word)
            every.append(rank)
            for name, value in own.items():
                found.setdefault(name, {})[rank] = value
    return {name: {rank: them.get(rank, "") for rank in every} for name, them in found.items()}


def rank_versions(run: RecordedRun) -> dict[str, ByRank]:
    """Return the versions of libraries, by the ranks of the node that has them."""
    found: dict[str, dict[RankId, str]] = {}
    for part in run.everywhere:
        for name, version in _list_environment(part).versions.items():
            found.setdefault(name, {}).update(dict.fromkeys(_ranks_with_variables(part), version))
    found.pop("python", None)  # as the ranks say it
    return {**found}


def rank_machines(run: RecordedRun) -> dict[str, ByRank]:
    """Return what is known of the machines, by the ranks that run there."""
    found: dict[str, dict[RankId, str]] = {}
    for part in run.everywhere:
        environment = _list_environment(part)
        for name, value in (("kernel", environment.kernel), ("processors", environment.processors)):
            if value:
                found.setdefault(name, {}).update(
                    dict.fromkeys(_ranks_with_variables(part), str(value))
                )
    return {**found}


def _ranks_with_variables(part: RecordedRun) -> list[RankId]:
    """Return the ranks of a node; 0 where none is known."""
    return [*map(_read_rank, _list_environment(part).ranks)] or [0]


def _list_environment(part: RecordedRun) -> JobEnvironment:
    return part.environment or JobEnvironment()


Topic = Literal["environment", "versions", "python", "host", "gpu"]
_NUMBER = re.compile(r"([0-9]+)")


@dataclass(frozen=True)
class RankDifference:
    """Something of which the ranks have different values."""

    topic: Topic
    name: str  # "NCCL_SOCKET_IFNAME", "torch"; of the others the topic again
    values: Mapping[str, tuple[RankId, ...]]  # ranks by value; "": not set. Most ranks first


@dataclass(frozen=True)
class _Place:
    """The numbers that a rank has, which its variables repeat."""

    rank: RankId
    local_rank: int
    node: int


def find_differences(run: RecordedRun) -> tuple[RankDifference, ...]:
    """Return what ranks differ in: hosts, versions, Python, GPUs, environment.

    That each has its own rank, local rank or node in a variable (RANK=3, CUDA_VISIBLE_DEVICES=3,
    .../3/error.json) is no difference.
    """
    places = _places(run)
    found = [
        *_topic_differences("host", {"host": _find_hosts(run)}),
        *_topic_differences("versions", _versions(run)),
        *_topic_differences("python", hello_fields(run, ("python", "executable"))),
        *_topic_differences("gpu", {"GPU": _gpus(run)}),
        *_topic_differences("environment", rank_variables(run), places),
    ]
    return tuple(found)


def _topic_differences(
    topic: Topic, named: Mapping[str, Mapping[RankId, str]], places: Mapping[RankId, _Place] = {}
) -> Iterable[RankDifference]:
    """Yield what differs of the values by name and rank."""
    for name in sorted(named):
        by_rank = named[name]
        if len(set(by_rank.values())) < 2 or _only_numbers(by_rank, places):
            continue
        values: dict[str, list[RankId]] = {}
        for rank in sorted(by_rank):
            values.setdefault(by_rank[rank], []).append(rank)
        ordered = sorted(values.items(), key=lambda pair: (-len(pair[1]), pair[1]))
        yield RankDifference(topic, name, {value: tuple(ranks) for value, ranks in ordered})


def _only_numbers(by_rank: Mapping[RankId, str], places: Mapping[RankId, _Place]) -> bool:
    """Return whether all values are one, but for the number of each rank, or of its node."""
    if not by_rank.keys() <= places.keys():
        return False
    parted = {rank: _NUMBER.split(value) for rank, value in by_rank.items()}
    if len({len(parts) for parts in parted.values()}) > 1:
        return False
    count = len(next(iter(parted.values())))
    return all(_is_same_or_own(parted, places, number) for number in range(count))


def _is_same_or_own(
    parted: Mapping[RankId, Sequence[str]], places: Mapping[RankId, _Place], at: int
) -> bool:
    """Return whether one part of all values is the same, or each rank's own number."""
    if len({parts[at] for parts in parted.values()}) == 1:
        return True
    return any(
        all(parts[at] == str(getattr(places[rank], kind)) for rank, parts in parted.items())
        for kind in ("rank", "local_rank", "node")
    )


# ---- what is known of each rank ------------------------------------------------------------------


def _hellos(run: RecordedRun) -> dict[int, Hello]:
    """Return the last greeting of each rank."""
    events = [event for part in run.everywhere for event in part.events]
    hellos = [event for event in events if isinstance(event, Hello)]
    return {hello.rank: hello for hello in hellos if hello.rank is not None}


def _places(run: RecordedRun) -> dict[RankId, _Place]:
    looked = {one.rank: _Place(one.rank, one.local_rank, -1) for one in _looked_at(run)}
    announced: dict[RankId, _Place] = {
        rank: _Place(rank, one.local_rank, one.node) for rank, one in _hellos(run).items()
    }
    return {**looked, **announced}


def _looked_at(run: RecordedRun) -> list[RankFacts]:
    """Return the ranks that were looked at."""
    return [one for part in run.everywhere for one in part.facts.ranks]


def _find_hosts(run: RecordedRun) -> dict[RankId, str]:
    looked = {one.rank: one.host for one in _looked_at(run)}
    hosts = {**looked, **hello_fields(run, ("host",)).get("host", {})}
    return {rank: host for rank, host in hosts.items() if host}


def _ranks_with_events(part: RecordedRun) -> list[RankId]:
    numbered = {*map(_read_rank, _list_environment(part).ranks)}
    return sorted(numbered | {event.rank for event in part.events if event.rank is not None})


def _versions(run: RecordedRun) -> dict[str, dict[RankId, str]]:
    """Return versions by library and rank: each rank's own where it told of an import."""
    found: dict[str, dict[RankId, str]] = {}
    for part in run.everywhere:
        ranks = _ranks_with_events(part)
        for name, version in _list_environment(part).versions.items():
            found.setdefault(name, {}).update(dict.fromkeys(ranks, version))
        for event in part.events:
            if isinstance(event, Import) and event.rank is not None and event.version:
                found.setdefault(event.module, {})[event.rank] = event.version
    return found


def _gpus(run: RecordedRun) -> dict[RankId, str]:
    """Return the kind of GPU that each rank computes on, as far as NVML told."""
    found: dict[RankId, str] = {}
    for part in run.everywhere:
        kinds = {pid: gpu.name for gpu in part.facts.machine.gpus for pid in gpu.pids}
        for one in part.facts.ranks:
            if one.pid is not None and kinds.get(one.pid):
                found[one.rank] = kinds[one.pid]
    return found
