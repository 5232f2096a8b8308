"""Which process of a job is a rank, and when it says so; and which rank a process becomes by
init_process_group, where its number was not known before.

A process that has said hello as a rank claims it: the claim stands in its environment, and its
children inherit it. So a child that would be the same rank again (a DataLoader worker, a
compiler's helper) is none. What a script runs before its training (`python prepare.py; python
train.py` in a task of Slurm's) has the same variables as the training: so a process that a
launcher did not start itself says hello only when it imports one of the libraries that we know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ...base.launcher_env import number


class Role(Enum):
    """What a process is when it starts."""

    NONE = "none"  # a rank's child
    RANK = "rank"  # it says hello at once
    LATER = "later"  # it says hello when it imports a library that we know
    HELPER = "helper"  # spawned, and none unless it joins a group as one


class Claim(NamedTuple):
    """A rank of a job that a process has claimed."""

    job: str
    rank: int
    pid: int
    trains: bool  # it has imported a library that we know
    numbered: bool  # the number is known to be its own: a plain `python train.py` is rank 0 so far

    def __str__(self) -> str:
        """As it stands in the environment."""
        return f"{self.job}:{self.rank}:{self.pid}:{int(self.trains)}:{int(self.numbered)}"


def read_claim(text: str) -> Claim | None:
    """Return the claim that a variable holds, None for none."""
    words = text.split(":")
    if len(words) != 5 or not all(word.isdigit() for word in words[1:]):
        return None
    job, rank, pid, trains, numbered = words
    return Claim(job, int(rank), int(pid), trains == "1", numbered == "1")


class ProcessFacts(NamedTuple):
    """What is known of a process that starts."""

    pid: int
    parent: int
    claim: Claim | None  # inherited
    launched: bool  # a launcher's variables name its rank
    joined: bool  # a rank's own variables name its job (Lightning's own launch)
    numbered: bool  # LOCAL_RANK is there
    job: str  # as its own variables have it
    rank: int
    launcher: int  # the pid of the process that started the ranks
    has_others: bool = False  # ranks of its job are on other nodes, by its variables


def decide_role(seen: ProcessFacts) -> Role:
    """Return what a process is that is no launcher."""
    claim = seen.claim
    if claim is not None and claim.pid == seen.pid:  # it became another program
        return Role.RANK
    if seen.launched:
        return _decide_launched(seen)
    if seen.joined and claim is not None:
        if seen.numbered and seen.rank != claim.rank:
            return Role.RANK
        return _decide_below(claim)
    return Role.LATER


def _decide_below(claim: Claim) -> Role:
    if not claim.trains:  # it only starts others, so far
        return Role.LATER
    return Role.NONE if claim.numbered else Role.HELPER


def _decide_launched(seen: ProcessFacts) -> Role:
    claim = seen.claim
    if claim is not None and claim.rank == seen.rank:
        # Who spawns its ranks sets their variables itself; what these start has the variables too.
        of_the_rank = claim.numbered and seen.launcher == claim.pid
        if claim.job == seen.job or of_the_rank:
            return _decide_below(claim)
    return Role.RANK if seen.launcher == seen.parent else Role.LATER


def is_started_by_script(seen: ProcessFacts) -> bool:
    """Return whether a rank was started by a script that is watched itself, and that has set the
    rank's variables: no launcher did, and the script passes for the only rank until then. All of
    them have one monitor; not where others are on other nodes, whose monitors are to join.
    """
    claim = seen.claim
    if claim is None or not seen.launched or seen.has_others:
        return False
    return not claim.numbered and claim.pid == seen.launcher


# torch.distributed.init_process_group: the parameters that may be given by position.
_BY_POSITION = ("backend", "init_method", "timeout", "world_size", "rank")


class GroupNumbers(NamedTuple):
    """Rank and world size."""

    rank: int
    world_size: int


def read_group_numbers(
    args: Sequence[Any], kwargs: Mapping[str, Any], environ: Mapping[str, str]
) -> GroupNumbers | None:
    """Return the numbers that a call of init_process_group says: in its arguments, in the URL of
    its init_method, else in the environment (env://). None where it says none.
    """
    given = {**dict(zip(_BY_POSITION, args)), **kwargs}
    url = given.get("init_method")
    query = _read_query(url) if isinstance(url, str) else {}
    rank = _first_number(given.get("rank"), query.get("rank", [""])[0], number(environ, "RANK"))
    world = _first_number(
        given.get("world_size"), query.get("world_size", [""])[0], number(environ, "WORLD_SIZE")
    )
    if rank is None or world is None or rank >= world:
        return None
    return GroupNumbers(rank, world)


def _read_query(url: str) -> dict[str, list[str]]:
    from urllib.parse import parse_qs, urlsplit  # only here: most processes join by no URL

    return parse_qs(urlsplit(url).query)


def _first_number(*candidates: object) -> int | None:
    for one in candidates:
        if isinstance(one, str) and one.isascii() and one.isdigit():
            return int(one)
        if isinstance(one, int) and one >= 0:
            return one
    return None
