"""The types of a row of the table of libraries' functions (base/library_functions.py): what a
function on a stack does, and which of its local variables tell something.
"""

from __future__ import annotations

import enum

from .lazy_dataclass import dataclass


class Role(enum.Enum):
    """What a function does, as far as it matters to a hang."""

    POLLS_LOCK = enum.auto()  # asks for the lock on a file, sleeps, and asks again
    AWAITS_BUILD = enum.auto()  # waits until another process has built a torch extension
    BUILDS_EXTENSION = enum.auto()  # runs the compilers of one
    AWAITS_WORKERS = enum.auto()  # waits for what processes that it started are to give
    HANDLES_SIGNAL = enum.auto()  # runs where a signal interrupted something else
    MAKES_GROUP = enum.auto()  # makes a process group or its store, for which all ranks must come
    MEETS_NODES = enum.auto()  # waits, before there is a rank, until the other nodes have come
    ASKS_STORE = enum.auto()  # waits for a key that another rank is to set
    RUNS_COLLECTIVE = enum.auto()  # meets the other members of a group
    CALLS_WORKER = enum.auto()  # waits until another rank has run a function
    SERVES_WORKER = enum.auto()  # runs a function that another rank called
    AWAITS_ACTORS = enum.auto()  # waits for what actors or tasks of Ray are to give
    SPINS_FOR_OTHERS = enum.auto()  # asks shared memory without a pause for what others give
    AWAITS_PORT = enum.auto()  # asks for a port again and again, until it is free
    # waits for what rank `src` of a group of its own puts into the store, which rank 0 serves
    AWAITS_SOURCE = enum.auto()
    AWAITS_ANSWER = enum.auto()  # has asked one process, or each of some, and waits for the answer
    ASKS_BY_HTTP = enum.auto()  # and has done so by HTTP
    ASKS_SERVER = enum.auto()  # asks an address again and again, until a server answers there
    SERVES_REQUESTS = enum.auto()  # waits in the loop of a server for what is asked of it
    LEAVES_WORKERS = enum.auto()  # waits until all ranks have done what they were called for
    MEETS_WORKERS = enum.auto()  # waits until all ranks have come there
    STARTS_WORKERS = enum.auto()  # starts workers of a pool in place of those that have ended
    GOES_ROUND_STEPS = enum.auto()  # has the loop over the steps of a training
    WATCHES_RANKS = enum.auto()  # looks again and again whether the ranks that it started live
    ASKS_AGAIN = enum.auto()  # catches that a time limit is over, and asks once more
    TAKES_CONNECTION = enum.auto()  # waits until a pool of connections has one that is free
    TAKES_MANAGED_LOCK = enum.auto()  # asks the process of a multiprocessing.Manager for a lock
    AWAITS_GPU = enum.auto()  # waits until a GPU has done what it was given
    MAY_RUN_COLLECTIVE = enum.auto()  # does, or calls what does in C++, without a frame of its own


@dataclass(frozen=True)
class LibraryFunction:
    """A function, or several that mean the same. No row may name a local that holds a secret:
    values are masked as text is.
    """

    file: str  # a regular expression for the end of the path
    name: str  # one for the whole of the unqualified name
    roles: frozenset[Role] = frozenset()
    lock: str = "a lock file"  # in words, what it polls: where nothing tells the path
    path_locals: tuple[str, ...] = ()  # which tell the path of the lock file, the best first
    path_below: str = ""  # the lock's name, where they tell the folder that it is in
    locals: str = ""  # further ones that are worth showing, the telling ones first
    limit: str = ""  # those that tell for how many seconds the function waits at the most

    @property
    def shown_locals(self) -> tuple[str, ...]:
        """The names of all locals that may be shown."""
        return (*self.path_locals, *self.locals.split(), *self.limit.split())
