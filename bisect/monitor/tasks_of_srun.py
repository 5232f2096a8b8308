"""The tasks that an srun started on this node. They are below slurmstepd, not below srun, and may
have none of its variables (srun --export=NONE).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from ..evidence.sample import marked
from ..evidence.sockets import inode_of, table

# In each task: the port on which its srun listens (slurm's src/srun/libsrun/launch.c).
_PORT = "SLURM_SRUN_COMM_PORT"


def tasks(sruns: Iterable[int]) -> set[int]:
    """Return the tasks on this node, and what they started, of the processes `sruns`."""
    inodes = {inode for pid in sruns for inode in _sockets(pid)}
    if not inodes:
        return set()
    listening = [s for inode, s in table().items() if inode in inodes and s.state == "LISTEN"]
    ports = {one.local.rpartition(":")[2] for one in listening}
    return {pid for port in ports for pid in marked(_PORT, port)}


def _sockets(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inode = inode_of(os.readlink(f"/proc/{pid}/fd/{name}"))
                if inode is not None:
                    yield inode
