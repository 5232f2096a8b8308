"""What is not the same on all nodes of a job: versions of libraries and drivers, and the variables
by which ranks decide how they talk.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from .rank_facts import JobFacts, RankFacts
from .verdict_facts import NodeDifference, NodesWithValue

_NAMED = 3  # nodes, in words
_LISTED = 8  # nodes of one value
_MOST_VALUES, _MOST_DIFFERENCES = 8, 24
_LONGEST = 120  # characters of a value
# Not those of which each rank or node has its own.
_COMPARED = re.compile(
    r"(?:NCCL|RCCL|GLOO|TORCH|PYTORCH|CUDA|UCX|FI)_(?!\w*(?:VISIBLE_DEVICES|_FILE|HOSTID)$)\w+"
)


class RecordOfNode(Protocol):
    """What a node tells of itself and its ranks (node_record.py)."""

    @property
    def host(self) -> str: ...
    @property
    def job(self) -> JobFacts: ...
    @property
    def ranks(self) -> tuple[RankFacts, ...]: ...


def find_node_differences(records: Iterable[RecordOfNode]) -> tuple[NodeDifference, ...]:
    """Return what nodes do not have in common, by what each tells: what one could not read, or has
    not imported yet, differs from nothing.
    """
    told = list(records)
    imported = {one.host: _rename(one.job.versions) for one in told}
    installed = {one.host: _read_installed(one.job) for one in told}
    read = {host for host, found in installed.items() if found}
    versions = {host: {**installed[host], **found} for host, found in imported.items()}
    names = {name for found in installed.values() for name in found}
    variables = {one.host: _list_variables(one.ranks) for one in told if _has_told(one.ranks)}
    found = [
        *(one for one in compare_nodes(versions, whole=()) if one.name not in names),
        *(one for one in compare_nodes(versions, whole=read) if one.name in names),
        *compare_nodes(variables),
    ]
    return tuple(found[:_MOST_DIFFERENCES])


def _rename(versions: Mapping[str, str]) -> dict[str, str]:
    return {"Python" if name == "python" else name: value for name, value in versions.items()}


def _read_installed(job: JobFacts) -> dict[str, str]:
    machine = job.machine
    return {**machine.installed, **({"driver": machine.driver} if machine.driver else {})}


def _has_told(ranks: Iterable[RankFacts]) -> bool:
    return any(facts.environment for facts in ranks)


def _list_variables(ranks: Iterable[RankFacts]) -> dict[str, str]:
    """Return the variables of a node's ranks; where they differ among these, all values of each."""
    found: dict[str, dict[str, None]] = {}
    known = [facts.environment for facts in ranks if facts.environment]
    for name in sorted({name for own in known for name in own if _COMPARED.fullmatch(name)}):
        for own in known:
            found.setdefault(name, {})[own.get(name, "not set")] = None
    return {name: " or ".join(sorted(values)) for name, values in found.items()}


def compare_nodes(
    by_host: Mapping[str, Mapping[str, str]], whole: Collection[str] | None = None
) -> Iterator[NodeDifference]:
    """Yield what is not the same on all hosts, of what each has by name. `whole`: the hosts that
    have told all that they have (None: all); another one may have what it does not tell.
    """
    for name in dict.fromkeys(name for told in by_host.values() for name in told):
        hosts: dict[str, list[str]] = {}
        for host, told in by_host.items():
            if name in told or whole is None or host in whole:
                hosts.setdefault(told.get(name, "")[:_LONGEST], []).append(host)
        if len(hosts) > 1:
            usual = max(hosts, key=lambda value: len(hosts[value]))
            ordered = [usual, *sorted(hosts.keys() - {usual})][:_MOST_VALUES]
            yield NodeDifference(
                name,
                tuple(NodesWithValue(v, tuple(hosts[v][:_LISTED]), len(hosts[v])) for v in ordered),
            )


def word_difference(one: NodeDifference, absent: str = "not set") -> str:
    """Return in words who has what: "torch: 2.13.0 on n1, n2, n3 and 4 more, 2.12.1 on n8"."""
    words = (f"{each.value or absent} on {_name_nodes(each)}" for each in one.values)
    return f"{one.name}: {', '.join(words)}"


def _name_nodes(found: NodesWithValue) -> str:
    some = ", ".join(found.nodes[:_NAMED])
    return f"{some} and {found.count - _NAMED} more" if found.count > _NAMED else some
