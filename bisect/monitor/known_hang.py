"""The hang that a search is about: shown again, it need not be waited for as long as a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .members import Member, Members

STEADY = "steady"  # past it is who is watched no more, in a script of the user's own

if TYPE_CHECKING:
    from ..facts import HangPlace, Look


@dataclass(frozen=True)
class KnownHang:
    """Where it is, its stacks, and for how long (seconds) they must stand still to be it."""

    place: HangPlace
    still: float

    def is_place_of(self, members: Members, member: Member) -> bool:
        """Return whether a member is in the step and phase in question. Who has done them all and
        does not end is told to be in the last one.
        """
        if member.inside is not None:
            inside = member.inside
            return (inside.name, inside.phase) == (self.place.checkpoint, self.place.phase)
        checkpoint = members.checkpoint_of(member) or members.table[-1]
        return (checkpoint.name, member.phase) == (self.place.checkpoint, self.place.phase)

    def is_shown_by(self, looks: Sequence[Look]) -> bool:
        """Return whether looks at a rank show the known stack."""
        from ..bisection.hang_place import shows

        return shows(self.place, looks)


def known_hang(found: Mapping[str, Any]) -> KnownHang:
    """Return what a file of --known-hang says."""
    from ..facts import HangPlace

    stacks = tuple(tuple((str(f), str(n)) for f, n in stack) for stack in found["stacks"])
    place = HangPlace(found["checkpoint"], found.get("phase"), stacks=stacks)
    return KnownHang(place, float(found["still"]))


def is_past(members: Members, name: str) -> bool:
    """Return whether every rank of this node is past the checkpoint or phase of that name. Past the
    last checkpoint is only who has ended, and that needs no watching for.
    """
    if not members.by_rank or len(members.by_rank) < len(members.expected):
        return False
    if members.own is not None and name == STEADY:
        return all(member.quiet for member in members)
    if members.own is not None:
        return all(members.own.is_past(member, name) for member in members)
    if name == members.table[-1].name:
        return False
    return all(_is_past(members, member, name) for member in members)


def _is_past(members: Members, member: Member, name: str) -> bool:
    for checkpoint in members.table:
        if checkpoint.name == name:
            return member.reached >= checkpoint.number
        phases = [phase.name for phase in checkpoint.phases]
        if name in phases:
            beyond = phases[phases.index(name) + 1 :]
            inside = member.step == checkpoint.number and member.phase in beyond
            return inside or member.reached >= checkpoint.number
    return False
