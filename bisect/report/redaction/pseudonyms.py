"""Names in place of names: host-1, user-2, address-3."""

from __future__ import annotations

import re

_ONE = re.compile(r"(?:hosts?|user|address|mac|mail)-[0-9]{1,6}")


class Pseudonyms:
    """Gives each name of a kind a number, in the order in which they are met."""

    def __init__(self) -> None:
        """Start with none."""
        self._given: dict[tuple[str, str], str] = {}
        self._last: dict[str, int] = {}

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of `name`, which is always the same."""
        known = self._given.get((kind, name))
        if known is None:
            self._last[kind] = self._last.get(kind, 0) + 1
            known = self._given[kind, name] = f"{kind}-{self._last[kind]}"
        return known

    @staticmethod
    def is_one(name: str) -> bool:
        """Return whether `name` is a pseudonym: such a one is left as it is."""
        return _ONE.fullmatch(name) is not None
