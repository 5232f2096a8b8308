"""What torch's flight recorder holds of a running rank, asked from the server that its job has
started for itself, or over the pipe that its owner set up.

The server is a child of rank 0 and listens at port 25999 unless the job says otherwise
(torch/distributed/debug/__init__.py). It is asked only where a process of the job has that port, or
is the server by its frames. It is asked by GET, page by page until one tells something: NCCL's
recorder, that of the other backends (gloo), TorchComms'. Each question is a line in the log of the
job's rank 0. A worker that gives no answer is waited for by the server itself, for 60 seconds: then
there is no page in our time.

With TORCH_NCCL_DEBUG_INFO_PIPE_FILE=PREFIX (TORCH_FR_DEBUG_INFO_PIPE_FILE with other backends) a
rank makes a FIFO PREFIX<rank>.pipe, opens it without waiting, and looks into it once a second
(TORCH_NCCL_COORD_CHECK_MILSEC) in the thread that watches over its watchdog; it then dumps to the
file that it dumps to when an operation times out, and goes on (DumpPipe in ProcessGroupNCCL.hpp,
HeartbeatMonitor::runLoop in ProcessGroupNCCL.cpp, torch 2.2 to 2.13). Nobody is paused.

Only a FIFO that the rank itself has open is written to, by the rank's own descriptor of it: whoever
made another file of the name gets nothing, and nobody waits for a reader.
"""

from __future__ import annotations

import http.client
import os
import re
import stat
import time
from collections.abc import Sequence

from ...base.addresses import port_of
from ...base.identity import RankId
from ...base.process_facts import Look
from ...base.rank_facts import CollectiveLog, RankFacts
from ..descriptors import read_links
from ..external_tools import names_dump_place, read_recorder_dump
from ..other_network import is_elsewhere
from .flight_recorder import load_dump, parse_dump

PORT = 25999
_OF_TORCHCOMMS = "/torchcomms_fr_trace_json"
_PAGES = ("/fr_trace_nccl_json", "/fr_trace_json", _OF_TORCHCOMMS)
_NAME = "Torch Distributed Debug Server"  # in the head of each page
_LARGEST = 64 << 20  # bytes of a page
_PART = 1 << 16
_MOST_WORDS = 120  # characters of what a worker said
# As the template has it (JSON_RESP_TEMPLATE in torch/distributed/debug/_frontend.py).
_ANSWER = re.compile(
    r"<h2>Rank (?P<rank>\d{1,6}): [^<]{0,300}</h2>\s{0,200}"
    r"(?:<p>Failed to fetch: status=(?P<status>\d{1,4})</p>\s{0,200})?"
    r"<pre>(?P<text>.*?)</pre>",
    re.DOTALL,
)
_NO_HANDLER = "404"
_SERVERS_FILE = "torch/distributed/debug/_frontend.py"
Logs = dict[int, CollectiveLog]


def find_debug_server(ranks: Sequence[RankFacts]) -> tuple[str, int] | None:
    """Return host and port of the server where a process of these ranks, in our own network,
    listens at its usual port, or is the server by its frames and listens at another one; None
    without. Nobody else's port is connected to.
    """
    looks = [
        (facts, looks[-1])
        for facts in ranks
        for looks in (facts.looks, *facts.children)
        if looks and not is_elsewhere(looks[-1].pid)
    ]
    if any(str(PORT) in _list_listening_ports(look) for _, look in looks):
        return "localhost", PORT
    for facts, look in looks:
        if any(f.file.endswith(_SERVERS_FILE) for t in look.threads for f in t.frames):
            # A child that was forked has the sockets of its rank as well.
            ports = _list_listening_ports(look) - _list_listening_ports(
                facts.looks[-1] if facts.looks else None
            )
            if len(ports) == 1:
                return "localhost", int(ports.pop())
    return None


def _list_listening_ports(look: Look | None) -> set[str]:
    """Return the ports at which a process listens."""
    sockets = () if look is None else look.sockets
    ports = (port_of(one.local) for one in sockets if one.state == "LISTEN")
    return {port for port in ports if port.isdecimal()}


def ask_debug_pages(
    host: str, port: int, limit: float, offset: float = 0.0
) -> tuple[Logs, dict[int, str]]:
    """Return (the log of each rank of the job, which workers gave none and why), both empty where
    no page tells anything within `limit` seconds. `offset` is what must be added to the wall clock
    to have the monotonic one. Never raises.
    """
    until = time.monotonic() + limit
    silent: dict[int, str] = {}
    for page in _PAGES:
        text = _read_page(host, port, page, until)
        if text is None or _NAME not in text:
            return {}, silent
        logs, unheard = parse_page(text, offset)
        silent = silent or unheard
        # TorchComms numbers the operations of all groups together, sends among them (record of its
        # hooks/fr/FlightRecorder.cpp): of several groups its numbers say nothing.
        if logs and (page != _OF_TORCHCOMMS or _have_one_group(logs)):
            return logs, silent
    return {}, silent


def _have_one_group(logs: Logs) -> bool:
    operations = [one for log in logs.values() for one in log.operations]
    names = {one.group for one in operations} | {
        name for log in logs.values() for name in log.groups
    }
    return len(names) <= 1 and not any(one.kind in ("send", "recv") for one in operations)


def _read_page(host: str, port: int, page: str, until: float) -> str | None:
    """Return a page, None for one that does not come in time, or is none."""
    connection = http.client.HTTPConnection(host, port, timeout=max(0.01, until - time.monotonic()))
    parts: list[bytes] = []
    size = 0
    try:
        connection.request("GET", page)
        answer = connection.getresponse()
        while part := answer.read1(_PART):
            parts.append(part)
            size += len(part)
            left = until - time.monotonic()
            if left <= 0 or size > _LARGEST:
                return None
            if connection.sock is not None:
                connection.sock.settimeout(left)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return b"".join(parts).decode(errors="replace")


def parse_page(text: str, offset: float = 0.0) -> tuple[Logs, dict[int, str]]:
    """Return (the log of each rank in a page, which workers gave none and why); a worker that has
    no such recorder is in neither. Never raises.
    """
    logs: Logs = {}
    silent: dict[int, str] = {}
    for match in _ANSWER.finditer(text):
        rank, status, said = int(match["rank"]), match["status"], match["text"]
        if status is not None and status != _NO_HANDLER:
            silent[rank] = f"status {status}, {' '.join(said.split())[:_MOST_WORDS]}"
        elif status is None:
            try:
                log = parse_dump(load_dump(said.strip().encode()), "flight recorder", offset)
            except ValueError:
                continue
            if log is not None:
                logs[rank] = log
    return logs, silent


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
    ranks: Sequence[RankFacts],
    found: dict[RankId, CollectiveLog],
    limit: float,
    silent: list[RankId] | None = None,
) -> None:
    """Have the recorders of these ranks dump, and put what they wrote within `limit` seconds into
    `found`, and who wrote nothing by then into `silent`. A rank without such a pipe is left alone.
    Never raises. May block on a bad file system.
    """
    until = time.monotonic() + limit
    since = time.time() - _CLOCK_TICK
    waiting: dict[RankId, RankFacts] = {
        facts.rank: facts
        for facts in ranks
        if (path := find_recorder_pipe(facts)) is not None and write_byte(path)
    }
    while waiting:
        offset = time.monotonic() - time.time()
        for rank, facts in list(waiting.items()):
            log = read_recorder_dump(rank, facts.environment, since, offset, facts.pid)
            if log is not None:
                found[rank] = log
                del waiting[rank]
        if not waiting or time.monotonic() + _PAUSE > until:
            break
        time.sleep(_PAUSE)
    if silent is not None:
        silent += waiting


def read_left_dumps(
    ranks: Sequence[RankFacts], found: dict[RankId, CollectiveLog], since: float, world: int = 0
) -> None:
    """Put into `found` what the recorders of these ranks left in files after `since` (wall clock),
    when an operation timed out for instance. Where the job does not say where they dump, what is
    there may be another job's: it counts where its first group has as many ranks as this job,
    `world`. Never raises. May block on a bad file system.
    """
    offset = time.monotonic() - time.time()
    for facts in ranks:
        if facts.rank in found or facts.pid is None or not isinstance(facts.rank, int):
            continue
        log = read_recorder_dump(facts.rank, facts.environment, since, offset, facts.pid)
        if log is not None and (
            names_dump_place(facts.environment) or len(log.groups.get("0", ())) == world
        ):
            found[facts.rank] = log


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
