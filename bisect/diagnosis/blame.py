"""Who is at fault: the sinks of the graph of who waits for whom, the least advanced first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Progress = tuple[int, int]  # checkpoints finished, phases begun


def sinks(needs: Mapping[int, Iterable[int]]) -> frozenset[int]:
    """Return the ranks from which nothing can be reached that does not lead back to them.

    `needs` says for each rank for which it waits. A rank that waits for none is a sink; so is a
    ring of ranks that wait for one another and for nobody else. Ranks that are not keys of
    `needs` are ignored.
    """
    reach = {rank: _reachable(rank, needs) for rank in needs}
    return frozenset(
        rank for rank, others in reach.items() if all(rank in reach[other] for other in others)
    )


def _reachable(rank: int, needs: Mapping[int, Iterable[int]]) -> set[int]:
    """Return the ranks that `rank` waits for, directly or not; itself only if in a ring."""
    found: set[int] = set()
    ahead = [other for other in needs[rank] if other in needs]
    while ahead:
        other = ahead.pop()
        if other not in found:
            found.add(other)
            ahead.extend(n for n in needs[other] if n in needs and n not in found)
    return found


def least_advanced(ranks: Iterable[int], progress: Mapping[int, Progress]) -> tuple[int, ...]:
    """Return those of `ranks` that came least far, in order."""
    candidates = sorted(ranks)
    if not candidates:
        return ()
    least = min(progress[rank] for rank in candidates)
    return tuple(rank for rank in candidates if progress[rank] == least)
