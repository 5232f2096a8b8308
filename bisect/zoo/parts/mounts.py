"""File systems that are frozen or too small. They need root."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
_FREEZER = """
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
def mounted(place: Path, *how: str) -> Iterator[Path]:
    """Mount a file system at `place`, which is made: `how` are words for mount(8)."""
    with helper(_MOUNTED, place, *how, limit=30.0):
        yield place


@contextlib.contextmanager
def ext4(place: Path, mebibytes: int = 32) -> Iterator[Path]:
    """Mount a new ext4 on a loop device at `place`: what can be frozen (NFS that went away)."""
    import subprocess

    image = place.with_name(place.name + ".image")
    with open(image, "wb") as file:
        file.truncate(mebibytes << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with mounted(place, "-o", "loop,noatime", str(image)):
        yield place


@contextlib.contextmanager
def frozen(place: Path, seconds: float = 0.0) -> Iterator[None]:
    """Freeze the file system that is mounted at `place`: who writes to it sits in state D.

    It is thawed after `seconds`, with 0 not before the block is left.
    """
    with helper(_FREEZER, place, seconds, limit=30.0):
        yield
