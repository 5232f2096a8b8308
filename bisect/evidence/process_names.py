"""What a process is called: the kernel's name of it, or what it does in an inference server."""

from __future__ import annotations

import os

from ..base.proc import LARGEST, read_stat
from ..base.server_processes import LONGEST_NAME, NAMES, name_server_process


def name_of(pid: int) -> str:
    """Return the name of a process, "" if it is gone. That of a server's, and a long one, reads its
    command line, unless that may block.
    """
    about = read_stat(pid)
    if about is None or about.state in "DZX":
        return about.comm if about is not None else ""
    if len(about.comm) < LONGEST_NAME and not about.comm.startswith(NAMES):
        return about.comm
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            title = os.fsdecode(file.read(LARGEST).partition(b"\0")[0])
    except OSError:
        return about.comm
    return name_server_process([title], about.comm)
