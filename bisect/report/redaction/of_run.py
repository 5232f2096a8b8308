"""The redactor for a run: what its own files tell is known before anything is redacted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..kept.run import KeptRun
from .known import Known
from .redactor import Redactor

_HOMES = ("HOME",)
_USERS = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER")
_HOSTS = ("host", "neighbours", "HOSTNAME", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "MASTER_ADDR")


def redactor_for(run: KeptRun, anonymous: bool = False) -> Redactor:
    """Return a redactor that has met the secrets, and with `anonymous` the names, of `run`.

    They are met in an order of their own: so a thing has the same mark in every file that is made
    of this run, whenever it is made, and a password that a variable holds is found in a log.
    """
    parts = list(_parts(run))
    redactor = Redactor(anonymous, known_in(parts) if anonymous else Known())
    for part in parts:
        redactor.learn(part)
    return redactor


def known_in(objects: Iterable[Any]) -> Known:
    """Return hosts, users and home folders that the objects of a run's JSON files name."""
    hosts: dict[str, None] = {}
    users: dict[str, None] = {}
    homes: dict[str, None] = {}
    for name, value in _named(objects):
        for names, found in ((_HOSTS, hosts), (_USERS, users), (_HOMES, homes)):
            if name in names:
                found[value] = None
    return Known(tuple(hosts), tuple(users), tuple(homes))


def _parts(run: KeptRun) -> Iterator[Any]:
    for one in run.everywhere:
        yield from (one.environment, one.verdict, one.answer)
    for one in run.everywhere:
        yield from (one.evidence, list(one.events), dict(sorted(one.stacks.items())), one.merged)


def _named(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if name and value:
            yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named(item, name)
