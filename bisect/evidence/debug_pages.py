"""What torch's flight recorders hold, asked from the server that a job has started for itself with
torch.distributed.debug.start_debug_server (torch 2.10 and later): a page of its has the answers of
all workers of the job, as JSON.

The server is a child of rank 0 and listens at port 25999 unless the job says otherwise
(torch/distributed/debug/__init__.py). It is asked only where a process of the job has that port, by
GET, page by page until one tells something: NCCL's recorder, that of the other backends (gloo),
TorchComms'. Each question is a line in the log of the job's rank 0. A worker that gives no answer
is waited for by the server itself, for 60 seconds: then there is no page in our time.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Sequence

from ..base.addresses import port_of
from ..base.rank_facts import CollectiveLog, RankFacts
from .flight_recorder import load_dump, parse_dump
from .other_network import is_elsewhere

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
Logs = dict[int, CollectiveLog]


def find_debug_server(ranks: Sequence[RankFacts]) -> tuple[str, int] | None:
    """Return host and port of the server where a process of these ranks, in our own network,
    listens at its port, None without. Nobody else's port is connected to.
    """
    for facts in ranks:
        for looks in (facts.looks, *facts.children):
            last = looks[-1] if looks and not is_elsewhere(looks[-1].pid) else None
            for socket in last.sockets if last is not None else ():
                if socket.state == "LISTEN" and port_of(socket.local) == str(PORT):
                    return "localhost", PORT
    return None


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
