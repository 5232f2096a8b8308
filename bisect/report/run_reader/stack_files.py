"""A file of the folder stacks/ as what it tells: whose stack it is, its threads, and its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ...base.identity import RankId, UnknownRank

# As rank_file() names them, of children with name and pid.
_NAME = re.compile(r"rank-(?:(\d{1,8})|pid(\d{1,10})(?:\+([\w.]{1,255}))?)(?:-(.+)-(\d+))?\.txt")
_THREAD = re.compile(r"Thread |Current thread ")
# What no two processes share, and no stack is about.
_OWN = re.compile(r"\b(pid|Process|Thread|time:) \S+|0x[0-9a-f]+|\(\d+\)")
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True)
class StackFile:
    """One of them: of a rank, or of a child of a rank."""

    name: str
    text: str
    rank: RankId | None = None  # None: its name tells none
    process: str = ""  # a child's name, "" for a rank
    pid: int | None = None  # a child's

    @property
    def is_of_rank(self) -> bool:
        return self.rank is not None and not self.process

    @property
    def is_traceback(self) -> bool:
        """Return whether it is that of an error that ended the rank."""
        return self.text.startswith(_TRACEBACK)

    @cached_property
    def lines(self) -> list[str]:
        return split_lines(self.text)

    @cached_property
    def _threads(self) -> list[int]:
        """Where threads begin."""
        return [i for i, line in enumerate(self.lines) if _THREAD.match(line)]

    @cached_property
    def main_end(self) -> int:
        """Where the main thread ends: a thread after it begins, or a log."""
        begins = self._threads
        main = next((i for i in begins if "MainThread" in self.lines[i]), min(begins, default=0))
        return begins[1] if len(begins) > 1 and main == begins[0] else len(self.lines)

    @property
    def other_threads(self) -> int:
        """How many threads there are behind the main one."""
        return sum(1 for begin in self._threads if begin >= self.main_end)

    @property
    def innermost(self) -> str:
        """The innermost frame of Python, of the first thread; else the innermost."""
        begin = self._threads[0] if self._threads else len(self.lines)
        inside = self.lines[begin : self.main_end]
        frames = [line.strip() for line in inside if line.startswith("    ")]
        return next((frame for frame in frames if ".py:" in frame), frames[0] if frames else "")

    @cached_property
    def kind(self) -> str:
        """What stacks have in common that are of one kind: their frames."""
        told = ("    ", "no stack", "state:")
        frames = [line for line in self.text.splitlines() if line.startswith(told)]
        return _OWN.sub("", "\n".join(frames))


def read_stack_file(name: str, text: str) -> StackFile:
    """Return a file by its name in stacks/, and what it holds."""
    found = _NAME.fullmatch(name)
    if found is None:
        return StackFile(name, text)
    pid = int(found[5]) if found[5] else None
    rank = int(found[1]) if found[1] else UnknownRank(found[3] or "", int(found[2]))
    return StackFile(name, text, rank, found[4] or "", pid)


def read_stack_files(texts: Mapping[str, str]) -> list[StackFile]:
    """Return the files with the name of a rank or a child: ranks before children, by number.

    `texts`: by the names of the files.
    """
    found = [read_stack_file(name, text) for name, text in texts.items()]
    named = [(bool(one.process), one.rank, one.name, one) for one in found if one.rank is not None]
    return [one for *_, one in sorted(named, key=lambda key: key[:3])]


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, as files have them: at line feeds alone."""
    return text.replace("\r\n", "\n").rstrip("\n").split("\n") if text.strip() else []
