"""File systems that are frozen or too small, control groups that freeze or read slowly, networks
and mounts of a job's own. They need root.

A process of the job goes into a control group by itself: it writes its pid into cgroup.procs of
the folder.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from .processes import helper

# Thawing comes first: a frozen file system is unmounted, but stays until somebody thaws it.
_MOUNTED = """
import subprocess
place, *how = sys.argv[1:]
os.makedirs(place, exist_ok=True)
def at_end():
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["fsfreeze", "--unfreeze", place], **quiet)
    subprocess.run(["umount", "--lazy", place], **quiet)
subprocess.run(["mount", *how, place], check=True)
ready(place)
threading.Event().wait()
"""
_MOUNT_FREEZER = """
import subprocess
place, seconds = sys.argv[1], float(sys.argv[2])
def at_end():
    subprocess.run(["fsfreeze", "--unfreeze", place], stderr=subprocess.DEVNULL)
subprocess.run(["fsfreeze", "--freeze", place], check=True)
ready()
if seconds:
    threading.Event().wait(seconds)
    at_end()
threading.Event().wait()
"""


@contextlib.contextmanager
def mount_file_system(place: Path, *how: str) -> Iterator[Path]:
    """Mount a file system at `place`, which is made: `how` are words for mount(8)."""
    with helper(_MOUNTED, place, *how, limit=30.0):
        yield place


@contextlib.contextmanager
def mount_ext4(place: Path, mebibytes: int = 32) -> Iterator[Path]:
    """Mount a new ext4 on a loop device at `place`: what can be frozen (NFS that went away)."""
    import subprocess

    image = place.with_name(place.name + ".image")
    with open(image, "wb") as file:
        file.truncate(mebibytes << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with mount_file_system(place, "-o", "loop,noatime", str(image)):
        yield place


@contextlib.contextmanager
def freeze_file_system(place: Path, seconds: float = 0.0) -> Iterator[None]:
    """Freeze the file system that is mounted at `place`: who writes to it sits in state D.

    It is thawed after `seconds`, with 0 not before the block is left.
    """
    with helper(_MOUNT_FREEZER, place, seconds, limit=30.0):
        yield


# Where the kernel has version 2 ("unified": where version 1 is mounted beside it), cgroups(7).
CGROUP2_ROOTS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
BLKIO_ROOT = Path("/sys/fs/cgroup/blkio")
_cgroup_numbers = itertools.count(1)

# At the end whatever is in it thaws, and goes back to where it can live without the folder.
_CGROUP = """
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


def find_cgroup2_root() -> Path | None:
    """Return where control groups of version 2 are mounted, None if nowhere."""
    return next((p for p in CGROUP2_ROOTS if (p / "cgroup.controllers").exists()), None)


# A moment after somebody has gone in, so that it is in whatever it does next.
_CGROUP_FREEZER = """
folder = sys.argv[1]
ready()
while not open(folder + "/cgroup.procs").read():
    threading.Event().wait(0.05)
threading.Event().wait(0.5)
open(folder + "/cgroup.freeze", "w").write("1")
threading.Event().wait()
"""


@contextlib.contextmanager
def freezing_cgroup() -> Iterator[Path]:
    """A group of version 2 that is frozen as soon as anybody is in it."""
    root = find_cgroup2_root()
    if root is None:
        raise RuntimeError("this machine has no control groups of version 2")
    with _make_cgroup(root) as group, helper(_CGROUP_FREEZER, group):
        yield group


@contextlib.contextmanager
def slow_reading_cgroup(disk: Path, bytes_a_second: int) -> Iterator[Path]:
    """A group that reads so slowly from the device that is mounted at `disk` (version 1)."""
    import os

    with _make_cgroup(BLKIO_ROOT) as group:
        device = os.stat(disk).st_dev
        limit = f"{os.major(device)}:{os.minor(device)} {bytes_a_second}"
        (group / "blkio.throttle.read_bps_device").write_text(limit)
        yield group


@contextlib.contextmanager
def _make_cgroup(parent: Path) -> Iterator[Path]:
    import os

    with helper(_CGROUP, parent / f"zoo-{os.getpid()}-{next(_cgroup_numbers)}") as kept:
        yield Path(kept.said)


UNANSWERED = "10.255.255.1"  # packets to it leave, and nothing comes back

# A pair of virtual cables: what goes into one end comes out at the other, where nobody has that
# address. The neighbour is told by hand, so that ARP does not fail first.
CABLE = (
    "ip link add cable type veth peer name far-end",
    "ip addr add 10.255.255.2/24 dev cable",
    "ip link set far-end up",
    "ip link set cable up",
    f"ip neigh replace {UNANSWERED} lladdr 02:00:00:00:00:01 dev cable",
)


def own_network(unanswered: bool = False, also: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the words in front of a command that give it a network of its own, loopback only.

    With `unanswered`: also an address that swallows whatever is sent to it. `also`: further
    commands for the shell, in the new namespace.
    """
    commands = ["ip link set lo up", *(CABLE if unanswered else ()), *also, 'exec "$@"']
    return ("unshare", "--net", "--", "sh", "-e", "-c", "\n".join(commands), "sh")


def own_mounts(also: Sequence[str] = (), network: bool = False) -> tuple[str, ...]:
    """Return the words in front of a command that give it mounts of its own.

    `also`: commands for the shell in there, to mount something that nobody else sees.
    """
    kinds = ("--mount", "--net") if network else ("--mount",)
    commands = [*also, 'exec "$@"']
    return ("unshare", *kinds, "--", "sh", "-e", "-c", "\n".join(commands), "sh")
