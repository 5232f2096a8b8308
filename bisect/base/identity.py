"""Who a process and a rank are, and what they are called."""

from __future__ import annotations

import re

from .lazy_dataclass import dataclass

_WRITTEN = re.compile(r"\? \(pid (\d{1,10})(?: on (.{1,255}))?\)", re.DOTALL)


@dataclass(frozen=True, order=True)
class ProcessId:
    """A process: each machine, and each container, numbers its processes for itself."""

    host: str  # "" where it is not known
    pid: int

    def __str__(self) -> str:
        return f"{self.pid} on {self.host}" if self.host else str(self.pid)


@dataclass(frozen=True)
class UnknownRank:
    """A rank whose number could not be read: its process identifies it. It sorts behind all that
    have a number.
    """

    host: str  # "" where it is not known
    pid: int | None  # None: of a dump that does not tell
    # Which of the ranks without a number it is in dumps, from 1; 0 for one that was looked at.
    place: int = 0

    def __str__(self) -> str:
        """Return what stands where others have their number: "?", in dumps "?(4711)"."""
        return f"?({self.pid or self.place})" if self.place else "?"

    def __lt__(self, other: object) -> bool:
        if isinstance(other, UnknownRank):
            return self._order < other._order
        return False if isinstance(other, int) else NotImplemented

    def __gt__(self, other: object) -> bool:
        if isinstance(other, UnknownRank):
            return self._order > other._order
        return True if isinstance(other, int) else NotImplemented

    @property
    def _order(self) -> tuple[int, str, int]:
        return self.place, self.host, self.pid or 0


_MOST_RANKS = 1 << 24  # a larger number in a file is no rank
RankId = int | UnknownRank  # its number, or its process where that is not known


def name_rank(rank: RankId) -> str:
    """Return what no other rank is called: "rank 3", "rank ? (pid 712 on n2)"."""
    return f"rank {_tell_apart(rank)}"


def _tell_apart(rank: RankId) -> str:
    if isinstance(rank, int) or rank.place or rank.pid is None:
        return str(rank)
    return f"? (pid {ProcessId(rank.host, rank.pid)})"


def write_rank(rank: RankId) -> int | str | None:
    """Return a rank as JSON has it: its number, else "? (pid 712 on n2)"; of a dump null."""
    if isinstance(rank, int):
        return rank
    return None if rank.place else _tell_apart(rank)


def read_rank(value: object) -> RankId | None:
    """Return the rank that `write_rank` made a value of JSON of, None if it can be none."""
    if isinstance(value, str) and (found := _WRITTEN.fullmatch(value)):
        return UnknownRank(found[2] or "", int(found[1]))
    return value if type(value) is int and abs(value) < _MOST_RANKS else None


def parse_rank(text: str) -> RankId | None:
    """Return the rank that is called so, or that is a name in JSON: "3"; None if it can be none."""
    is_number = text.isascii() and text.isdigit() and len(text) < len(str(_MOST_RANKS))
    return int(text) if is_number else read_rank(text)


def native_file(rank: RankId) -> str:
    """Return the name, in a run folder, of all threads of a rank with their native frames."""
    return f"stacks/{rank_file(rank)}-native.txt"


def rank_file(rank: RankId) -> str:
    """Return what the files of a rank are named by: "rank-3", "rank-pid712+n2"."""
    if isinstance(rank, int):
        return f"rank-{rank}"
    host = "".join(c if c.isalnum() or c == "." else "_" for c in rank.host)
    return f"rank-pid{rank.pid}+{host}" if host else f"rank-pid{rank.pid}"
