"""Which captured inputs each rank of a replay takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def owners(captured: Iterable[int], replaying: int) -> list[tuple[int, ...]]:
    """Return for each of `replaying` ranks the ranks of the capture whose inputs it takes.

    With as many ranks on both sides each takes its own. Fewer take those of rank k at k modulo
    their number; of more, those without any take another's again, so that all have something to do.
    """
    ranks = sorted(set(captured))
    own = [tuple(k for k in ranks if k % replaying == number) for number in range(replaying)]
    return [mine or (ranks[n % len(ranks)],) for n, mine in enumerate(own)] if ranks else own


def share_of(
    captured: Sequence[int], number: int, replaying: int, most: int | None = None
) -> list[int]:
    """Return the places of the inputs that rank `number` of `replaying` takes, of inputs that were
    `captured` on these ranks; `most` of them.
    """
    mine = owners(captured, replaying)[number]
    return [at for at, rank in enumerate(captured) if rank in mine][:most]


def forwards(captured: Sequence[int], replaying: int, most: int | None = None) -> int:
    """Return how many forwards every rank does: as many as the one that has most inputs. A forward
    may hold a collective, for which all of them must come.
    """
    return max(len(share_of(captured, number, replaying, most)) for number in range(replaying))
