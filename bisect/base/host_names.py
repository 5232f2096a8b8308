"""The names of hosts that a person gives, "n[001-064],login,2001:db8::7", as a list."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence

from .errors import UsageError

MOST_NODES = 20_000  # a larger range is a typing error
_HELP = "--hosts n1,n2,n[05-16]: names, with ranges of numbers"
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.%-]*[A-Za-z0-9_])?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[\]]*\])")


def read_host_names(text: str, with_users: bool = False) -> tuple[str, ...]:
    """Return the names in "n[1-3,07],m", in their order; one that stands twice twice. `with_users`:
    "ada@n1" is one too.

    Raises UsageError for what is no name, and a range that is wrong or too large.
    """
    parts = [part.strip() for part in _OUTSIDE_BRACKETS.split(text) if part.strip()]
    names: list[str] = []
    for part in parts:
        for name in _expand(part):
            user, _, host = name.rpartition("@")
            has_user = with_users and _USER.fullmatch(user)
            names.append(f"{user}@{_check_name(host)}" if has_user else _check_name(name))
            if len(names) > MOST_NODES:
                raise UsageError(f"--hosts names more than {MOST_NODES} nodes: {part!r}", _HELP)
    return tuple(names)


def check_one_word(argv: Sequence[str]) -> None:
    """Raise UsageError where what follows the word of --hosts looks like one more host: a blank
    stands behind a comma, or in its place.
    """
    at = next((n for n, word in enumerate(argv) if word == "--hosts"), len(argv))
    named, behind = (*argv[at + 1 : at + 3], "", "")[:2]
    first = re.match(r"[A-Za-z]+", named)
    is_alike = first is not None and re.fullmatch(rf"{first[0]}[\d\[].*", behind)
    if behind and (named.endswith(",") or is_alike) and not behind.startswith("-"):
        raise UsageError(
            f"--hosts takes one word, and {behind!r} stands behind it",
            f"{_HELP}; commas, and no blanks",
        )


def _check_name(name: str) -> str:
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        pass
    if _NAME.fullmatch(name.partition(":")[0]) and name.partition(":")[2].isdecimal():
        why = (
            f"{name[:80]!r} in it: names alone, without slots (mpirun's) or a port (~/.ssh/config)"
        )
        raise UsageError(f"--hosts cannot have {why}", _HELP)
    if name.startswith("@"):
        raise UsageError(
            f"--hosts takes names, and not a file of them: {name[:80]!r}",
            f'--hosts "$(paste -sd, {name[1:80]})"',
        )
    if _NAME.fullmatch(name) is None:
        why = " (it would be an option)" if name.startswith("-") else ""
        raise UsageError(f"--hosts cannot have {name[:80]!r} in it{why}: it is no name", _HELP)
    return name


def _expand(part: str) -> Iterator[str]:
    """Yield the names in "n[1-3,07]-ib": each range in brackets, the last one the fastest."""
    before, bracket, rest = part.partition("[")
    if not bracket or ":" in rest.partition("]")[0]:  # an IPv6 address in brackets
        yield part
        return
    inside, closed, after = rest.partition("]")
    if not closed:
        raise UsageError(f"--hosts has a bracket that is not closed: {part[:80]!r}", _HELP)
    for number in _list_numbers(inside, part):
        for end in _expand(after):
            yield f"{before}{number}{end}"


def _list_numbers(inside: str, part: str) -> Iterator[str]:
    for one in inside.split(","):
        found = _RANGE.fullmatch(one.strip())
        if found is None:
            raise UsageError(f"--hosts cannot have the range [{inside[:80]}] in it", _HELP)
        first, last = found[1], found[2] or found[1]
        size = int(last) - int(first) + 1 if len(last) < 10 else MOST_NODES + 1
        if size < 1 or size > MOST_NODES:
            what = "ends before it begins" if size < 1 else f"has more than {MOST_NODES} names"
            raise UsageError(f"--hosts has a range that {what}: {part[:80]!r}", _HELP)
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"
