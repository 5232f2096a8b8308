"""Downloads that are not complete: files of a job whose names say so, and how large they are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ..evidence.aside import aside
from ..evidence.descriptors import links

ENDINGS = (".incomplete", ".part", ".partial", ".crdownload")  # the hub's; others' of the kind
LIMIT = 0.3  # seconds: the files may lie on a disk that does not answer


@dataclass(frozen=True)
class Download:
    """A file that is being downloaded, as one process has it open."""

    at: float
    pid: int
    path: str
    size: int
    grew: bool = False  # since the first look

    @property
    def name(self) -> str:
        """The file's own name; the hub calls it by a hash."""
        return os.path.basename(self.path)


async def downloads(pids: Iterable[int]) -> list[Download]:
    """Return the unfinished downloads that these processes have open, as far as LIMIT allows."""
    found: list[Download] = []
    try:
        await aside(_read, list(pids), found, limit=LIMIT, key="downloads")
    except TimeoutError:
        return list(found)
    return found


def _read(pids: list[int], found: list[Download]) -> None:
    for pid in pids:
        try:
            opened = links(pid)
        except OSError:
            continue
        for fd, path in opened.items():
            if not path.endswith(ENDINGS):
                continue
            try:
                size = os.stat(f"/proc/{pid}/fd/{fd}").st_size
            except OSError:
                continue
            found.append(Download(time.monotonic(), pid, path, size))
