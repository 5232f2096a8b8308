"""Control groups that freeze, or read slowly. They need root and a file system of theirs.

A process of the job goes in by itself: it writes its pid into cgroup.procs of the folder.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from .processes import helper

# Where the kernel has version 2 ("unified": where version 1 is mounted beside it), cgroups(7).
UNIFIED = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
THROTTLE = Path("/sys/fs/cgroup/blkio")
_numbers = itertools.count(1)

# At the end whatever is in it thaws, and goes back to where it can live without the folder.
_KEPT = """
folder = sys.argv[1]
parent = os.path.dirname(folder)
os.mkdir(folder)
def at_end():
    for _ in range(50):
        try:
            if os.path.exists(folder + "/cgroup.freeze"):
                open(folder + "/cgroup.freeze", "w").write("0")
            for pid in open(folder + "/cgroup.procs").read().split():
                open(parent + "/cgroup.procs", "w").write(pid)
            return os.rmdir(folder)
        except OSError:
            threading.Event().wait(0.1)
ready(folder)
threading.Event().wait()
"""


def unified() -> Path | None:
    """Return where control groups of version 2 are mounted, None if nowhere."""
    return next((p for p in UNIFIED if (p / "cgroup.controllers").exists()), None)


# A moment after somebody has gone in, so that it is in whatever it does next.
_FREEZER = """
folder = sys.argv[1]
ready()
while not open(folder + "/cgroup.procs").read():
    threading.Event().wait(0.05)
threading.Event().wait(0.5)
open(folder + "/cgroup.freeze", "w").write("1")
threading.Event().wait()
"""


@contextlib.contextmanager
def freezing() -> Iterator[Path]:
    """A group of version 2 that is frozen as soon as anybody is in it."""
    root = unified()
    if root is None:
        raise RuntimeError("this machine has no control groups of version 2")
    with _group(root) as group, helper(_FREEZER, group):
        yield group


@contextlib.contextmanager
def slow_reader(disk: Path, bytes_a_second: int) -> Iterator[Path]:
    """A group that reads so slowly from the device that is mounted at `disk` (version 1)."""
    import os

    with _group(THROTTLE) as group:
        device = os.stat(disk).st_dev
        limit = f"{os.major(device)}:{os.minor(device)} {bytes_a_second}"
        (group / "blkio.throttle.read_bps_device").write_text(limit)
        yield group


@contextlib.contextmanager
def _group(parent: Path) -> Iterator[Path]:
    import os

    with helper(_KEPT, parent / f"zoo-{os.getpid()}-{next(_numbers)}") as kept:
        yield Path(kept.said)
