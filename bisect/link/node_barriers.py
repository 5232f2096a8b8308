"""Which checkpoints all nodes of a job have reached: behind later ones each holds its ranks.

A node is waited for as long as it is heard and holds its own ranks in barriers. Where one is not,
nobody waits for another node: each holds its ranks for those of its own alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from .messages import AtBarrier

_MOST_NAMED = 4  # nodes for which others wait


class NodeBarriers:
    """The barrier that all nodes have in common, as their lead knows it."""

    def __init__(self) -> None:
        """Nobody waits for another node."""
        self.opened = -1  # the last checkpoint that each node has reached; -1: none is waited for
        self._at: dict[str, AtBarrier] = {}
        self._held: set[str] = set()  # nodes that wait behind the next one

    def note(self, node: str, at: AtBarrier) -> bool:
        """Note what a node tells; return whether a barrier may open by it, or all of them."""
        was = self._number_of(node)
        self._at[node] = at
        if at.number > self.opened:
            self._held.add(node)
        return min(was, at.number, self.opened) < 0 or len(self._held) >= len(self._at)

    def forget(self, node: str) -> None:
        """A node begins anew: it has not told yet whether it has barriers."""
        self._at.pop(node, None)

    def move(self, nodes: Collection[str]) -> bool:
        """Return whether the barrier has moved. `nodes` are those of the job, all of which are
        heard; none where some are missing.
        """
        numbers = [self._number_of(node) for node in nodes]
        opened = min(numbers) if len(numbers) > 1 else -1
        has_moved, self.opened = opened != self.opened, opened
        self._held = {node for node in nodes if self._number_of(node) > opened >= 0}
        return has_moved

    def list_arrived(self) -> dict[str, AtBarrier]:
        """Return the nodes that have come to the barrier which has opened, with their times."""
        return {node: at for node, at in self._at.items() if at.number == self.opened}

    def list_behind(self, names: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of some of the nodes for which others are held, () where none is."""
        if self.opened < 0 or not self._held:
            return ()
        behind = (name for node, name in names.items() if node not in self._held)
        return tuple(islice(behind, _MOST_NAMED))

    def _number_of(self, node: str) -> int:
        at = self._at.get(node)
        return -1 if at is None else at.number
