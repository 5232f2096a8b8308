"""What one file holds, whatever wrote it."""

from __future__ import annotations

from dataclasses import dataclass

from ..facts import CollectiveLog, Rung, Thread

# The outermost function of a main thread. Where the main thread of a process comes last, what
# follows it is another process.
OUTERMOST = ("<module>", "_run_module_as_main")


@dataclass(frozen=True)
class Line:
    """A line of a file. `task` is the rank that a launcher's prefix names, None without."""

    number: int  # from 1
    text: str
    task: int | None = None


@dataclass(frozen=True)
class Dumped:
    """One process, as one dump shows it."""

    tool: Rung
    threads: tuple[Thread, ...]  # the main one first
    file: str
    line: int  # where it begins
    pid: int | None = None
    parent: int | None = None
    command: str = ""
    host: str = ""
    rank: int | None = None  # as the text says; what the file is called comes later
    call: str = ""  # the system call that the main thread is in, as far as the stack tells
    thread: str = ""  # the main one's address: it tells processes apart where no pid is known
    fatal: str = ""  # what ended it: "Segmentation fault"


@dataclass(frozen=True)
class Recorded:
    """The collectives of one rank, as torch's flight recorder dumped them."""

    log: CollectiveLog
    file: str
    members: tuple[int, ...] = ()  # the ranks of the default group
    rank: int | None = None


@dataclass(frozen=True)
class Unreadable:
    """A file, or a part of one, that is none of the formats."""

    file: str
    line: int | None
    fact: str  # what is wrong with it, and what was expected


@dataclass(frozen=True)
class Contents:
    """All that was found in some files."""

    processes: tuple[Dumped, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    def __add__(self, other: Contents) -> Contents:
        return Contents(
            self.processes + other.processes,
            self.recorded + other.recorded,
            self.unreadable + other.unreadable,
        )
