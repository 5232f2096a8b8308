"""Barriers: who may go on. Pure."""

from __future__ import annotations

from .members import Member, Members


def opening(members: Members) -> list[int]:
    """Return the checkpoints whose barrier opens now: every rank of this node has reached them.

    A rank that left early cannot arrive any more: that is a finding of its own, and the barrier
    stays closed until it has been judged. One that had finished is waited for by nobody.
    """
    if not members.expected <= set(members.by_rank):
        return []
    held = sorted({m.held_at for m in members if m.held_at is not None})
    return [n for n in held if all(m.reached >= n or (m.left and m.finished) for m in members)]


def released(members: Members) -> list[Member]:
    """Return the members that waited for what rank 0 has done by now."""
    return [m for m in members if m.awaits and m.awaits_what in members.done]


def missing(members: Members, number: int) -> list[int]:
    """Return the ranks of this node that have not reached a checkpoint."""
    arrived = {m.rank for m in members if m.reached >= number}
    return sorted(members.expected - arrived)
