"""torch's flight recorder of a running rank, asked over the pipe that the job's owner set up for
it: a byte in it makes a thread of torch's write a dump.

With TORCH_NCCL_DEBUG_INFO_PIPE_FILE=PREFIX (TORCH_FR_DEBUG_INFO_PIPE_FILE with other backends) a
rank makes a FIFO PREFIX<rank>.pipe, opens it without waiting, and looks into it once a second
(TORCH_NCCL_COORD_CHECK_MILSEC) in the thread that watches over its watchdog; it then dumps to the
file that it dumps to when an operation times out, and goes on (DumpPipe in ProcessGroupNCCL.hpp,
HeartbeatMonitor::runLoop in ProcessGroupNCCL.cpp, torch 2.2 to 2.13). Nobody is paused.

Only a FIFO that the rank itself has open is written to, by the rank's own descriptor of it: whoever
made another file of the name gets nothing, and nobody waits for a reader.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping, Sequence

from ..base.identity import RankId
from ..base.rank_facts import CollectiveLog, RankFacts
from .descriptors import read_links
from .external_tools import read_recorder_dump

_PIPE_VARIABLES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE")
_PAUSE = 0.1  # seconds between two looks for the dumps
# The clock of a file system may be a tick of the kernel behind (CONFIG_HZ of 100 at the least).
_CLOCK_TICK = 0.02


def find_recorder_pipe(facts: RankFacts) -> str | None:
    """Return the path of the pipe by which a rank's recorder can be asked, None without one."""
    stem = next((v for n in _PIPE_VARIABLES if (v := facts.environment.get(n))), "")
    if not stem or facts.pid is None or not facts.alive or not isinstance(facts.rank, int):
        return None
    name = re.compile(rf"(?:^|/){re.escape(os.path.normpath(stem + str(facts.rank)))}\.pipe$")
    try:
        links = read_links(facts.pid)
        for number, link in links.items():
            path = f"/proc/{facts.pid}/fd/{number}"
            if name.search(link) and stat.S_ISFIFO(os.stat(path).st_mode):
                return path
    except OSError:
        pass
    return None


def ask_recorders(
    ranks: Sequence[RankFacts], found: dict[RankId, CollectiveLog], limit: float
) -> None:
    """Have the recorders of these ranks dump, and put what they wrote within `limit` seconds into
    `found`. A rank without such a pipe is left alone. Never raises. May block on a bad file system.
    """
    until = time.monotonic() + limit
    since = time.time() - _CLOCK_TICK
    waiting: dict[RankId, Mapping[str, str]] = {
        facts.rank: facts.environment
        for facts in ranks
        if (path := find_recorder_pipe(facts)) is not None and write_byte(path)
    }
    while waiting:
        offset = time.monotonic() - time.time()
        for rank, environment in list(waiting.items()):
            log = read_recorder_dump(rank, environment, since, offset)
            if log is not None:
                found[rank] = log
                del waiting[rank]
        if not waiting or time.monotonic() + _PAUSE > until:
            return
        time.sleep(_PAUSE)


def write_byte(path: str) -> bool:
    """Write a byte to a pipe; return whether somebody has it open to read. Waits for nobody."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # ENXIO: nobody reads it
        return False
    try:
        return os.write(descriptor, b"1") == 1
    except OSError:
        return False
    finally:
        os.close(descriptor)
