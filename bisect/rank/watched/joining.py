"""Which rank a process becomes by init_process_group, where nobody said so before. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..claims import number

# torch.distributed.init_process_group: the parameters that may be given by position.
_NAMES = ("backend", "init_method", "timeout", "world_size", "rank")


@dataclass(frozen=True)
class Numbers:
    """Rank and world size."""

    rank: int
    world_size: int


def numbers(
    args: Sequence[Any], kwargs: Mapping[str, Any], environ: Mapping[str, str]
) -> Numbers | None:
    """Return the numbers that a call of init_process_group says: in its arguments, in the URL of
    its init_method, else in the environment (env://). None where it says none.
    """
    given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
    url = given.get("init_method")
    query = parse_qs(urlsplit(url).query) if isinstance(url, str) else {}
    rank = _first(given.get("rank"), query.get("rank", [""])[0], number(environ, "RANK"))
    world = _first(
        given.get("world_size"), query.get("world_size", [""])[0], number(environ, "WORLD_SIZE")
    )
    if rank is None or world is None or rank >= world:
        return None
    return Numbers(rank, world)


def _first(*candidates: object) -> int | None:
    for one in candidates:
        if isinstance(one, str) and one.isascii() and one.isdigit():
            return int(one)
        if isinstance(one, int) and one >= 0:
            return one
    return None
