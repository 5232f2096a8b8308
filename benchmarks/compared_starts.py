"""Whether a script does the same below `hangbisect run` as without: output and exit status."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import jobs
from script_shelf import Script

_CHANGES = re.compile(  # times, rates, pids, ports, the folder of a start
    r"/job-\w+/|\d+\.\d+(e[-+]?\d+)?|\d\d:\d\d:\d\d(,\d+)?|\b\d{4,}\b|(?<=_per_second': ')[^']*"
)
_OURS = re.compile(r"\[\d\d:\d\d:\d\d\.\d{3}\]\[\+|OK  |    report: |hangbisect: ")
# std::terminate's words for a C++ thread that still runs as its object goes. Of 48 starts of
# `ddp_quick_start` without the watch, four at a time on two cores, torch 2.13 aborted three so.
_ABORTED, _TRIES = "terminate called without an active exception", 3
_VERDICT = re.compile(r"(CRASH|HANG|SLOW|INTERRUPTED)  ")


@dataclass(frozen=True)
class Compared:
    """A script that was started twice."""

    script: Script
    plain: jobs.Ended
    watched: jobs.Ended

    @property
    def differences(self) -> list[str]:
        """In what the two starts differ, and the first from what the script says of itself.

        Ranks print side by side: the order of lines is compared only of a plain program.
        """
        plain, watched, wanted = _status(self.plain), _status(self.watched), self.script.status
        found = []
        if plain != wanted:
            found.append(f"without the watch: status {plain}, not {wanted}\n{self.plain.err}")
        if watched != plain:
            found.append(f"status {watched}, not {plain}")
        ordered = self.script.is_program
        if not _same(lines(self.plain.out), lines(self.watched.out), ordered):
            found.append(f"standard output:\n{self.plain.out}---\n{self.watched.out}")
        if ordered and lines(self.plain.err) != (theirs := lines(self.watched.err)):
            found.append(f"standard error:\n{self.plain.err}---\n" + "\n".join(theirs))
        return found


def compared(script: Script, start: Callable[[bool], jobs.Ended]) -> Compared:
    """Start a script without the watch and with it: start(watched)."""
    return Compared(script, _start_whole(start, False), _start_whole(start, True))


def _start_whole(start: Callable[[bool], jobs.Ended], watched: bool) -> jobs.Ended:
    """Start it again where torch's threads abort it at its end, which says nothing of the watch."""
    for _ in range(_TRIES):
        ended = start(watched)
        if _ABORTED not in ended.err:
            break
    return ended


def lines(text: str) -> list[str]:
    """Return what the job itself printed, without what changes from start to start.

    A verdict that has more than a line is the last of what is printed.
    """
    its_own = takewhile(lambda line: not _VERDICT.match(line), text.splitlines())
    return [_CHANGES.sub("N", line) for line in its_own if not _OURS.match(line)]


def _status(ended: jobs.Ended) -> int:
    return ended.status if ended.status >= 0 else 128 - ended.status


def _same(first: Sequence[str], second: Sequence[str], ordered: bool) -> bool:
    if ordered:
        return first == second
    # A line of one rank may stand within another's.
    return sorted(first) == sorted(second) or sorted("".join(first)) == sorted("".join(second))
