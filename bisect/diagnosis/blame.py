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
    edges = {rank: [n for n in others if n in needs] for rank, others in needs.items()}
    back: dict[int, list[int]] = {rank: [] for rank in edges}
    for rank, others in edges.items():
        for other in others:
            back[other].append(rank)
    # Kosaraju: in the reverse order of leaving, what can be reached backwards is one ring.
    ring_of: dict[int, int] = {}
    for root in reversed(_left_in_order(edges)):
        ahead = [root]
        while ahead:
            rank = ahead.pop()
            if rank not in ring_of:
                ring_of[rank] = root
                ahead.extend(n for n in back[rank] if n not in ring_of)
    leaving = {
        ring_of[rank]
        for rank, others in edges.items()
        for n in others
        if ring_of[n] != ring_of[rank]
    }
    return frozenset(rank for rank in edges if ring_of[rank] not in leaving)


def _left_in_order(edges: Mapping[int, list[int]]) -> list[int]:
    """Return all ranks in the order in which a depth-first walk is done with them."""
    left: list[int] = []
    entered: set[int] = set()
    for start in edges:
        path = [(start, iter(edges[start]))] if start not in entered else []
        entered.add(start)
        while path:
            rank, others = path[-1]
            ahead = next((n for n in others if n not in entered), None)
            if ahead is None:
                left.append(rank)
                path.pop()
            else:
                entered.add(ahead)
                path.append((ahead, iter(edges[ahead])))
    return left


def least_advanced(ranks: Iterable[int], progress: Mapping[int, Progress]) -> tuple[int, ...]:
    """Return those of `ranks` that came least far, in order."""
    candidates = sorted(ranks)
    if not candidates:
        return ()
    least = min(progress[rank] for rank in candidates)
    return tuple(rank for rank in candidates if progress[rank] == least)
