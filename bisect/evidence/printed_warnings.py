"""What libraries print of ranks that wait: c10d of a store that it cannot reach, torchrun of its
rendezvous, vLLM and SGLang of parts that do not answer, torch's monitor of a watchdog that is
stuck, NCCL of what its own diagnostics found.

The lines have the form of public logs: gensyn-ai/rl-swarm#197 (c10d), vllm-project/vllm#27313,
vllm-project/vllm-ascend#3717 and vllm-project/vllm#16841 (vLLM), sgl-project/sglang#3752 (SGLang),
of torch's dynamic_rendezvous.py and HeartbeatMonitor::runLoop (ProcessGroupNCCL.cpp), and of NCCL's
manual of 2.31 ("RAS Diagnostics", "Active Diagnostics").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.line_prefixes import strip_colours
from ..base.masking import mask_text
from ..base.words import format_ranks
from .gpus.watchdog_messages import is_earlier

_MOST = 1024  # that are kept of a log, the last ones
_MOST_TOLD = 8
_LONGEST = 240  # characters of what is said
_RECENT = 300.0  # seconds: who cannot connect tries again, and says so, within a minute or two
_CONNECTS = "c10d"
# Who says it, a word that is in each such line, and what is said.
_KNOWN: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    (
        _CONNECTS,
        "[c10d]",
        re.compile(
            r"\[c10d\] (?P<text>(?:The client socket has (?:failed|timed out)"
            r"|The server socket has failed|The \S{0,8} ?network addresses of"
            r"|recvValue failed|sendBytes failed).*)"
        ),
    ),
    (
        "torchrun",
        "keep-alive",
        re.compile(r"(?P<text>The node '[^']{1,200}' has failed to send a keep-alive heartbeat.*)"),
    ),
    (
        "torch",
        "got stuck for",
        re.compile(r"(?P<text>ProcessGroupNCCL's watchdog got stuck for \d{1,9} ?seconds)"),
    ),
    (
        "vLLM",
        "broadcast block",
        re.compile(
            r"(?P<text>No available shared memory broadcast block found in \d{1,9} seconds)"
        ),
    ),
    ("SGLang", "Watchdog timeout", re.compile(r"\] (?P<text>Watchdog timeout \([^)]{0,80}\))")),
    (
        "SGLang",
        "detokenizer",
        re.compile(
            r"(?P<text>Health check failed\. Server couldn't get a response from detokenizer "
            r"for last \d{1,9} seconds)"
        ),
    ),
    ("NCCL's diagnostics", "NCCL DIAG", re.compile(r"NCCL DIAG \[INFO\] +(?P<text>.*)")),
)
_RANK = re.compile(r"\[rank(\d{1,6})\]:?")
_PROCESS = re.compile(
    r"\((?:[\w-]{1,40} )?(?:rank=\d{1,6} )?pid=(?P<pid>\d{1,9})\)|:(?P<nccl>\d{1,9}) NCCL DIAG"
)
_TIMES = tuple(
    re.compile(pattern + r"(?P<clock>\d\d:\d\d:\d\d)")
    for pattern in (
        r"\b[IWEF](?P<month>\d{1,2})(?P<day>\d\d) ",  # glog's head, and torch's in Python
        r"\b(?:INFO|WARNING|ERROR) (?P<month>\d\d)-(?P<day>\d\d) ",  # vLLM
        r"\[\d{4}-(?P<month>\d\d)-(?P<day>\d\d) ",  # SGLang
    )
)


@dataclass(frozen=True)
class PrintedWarning:
    """What a library said, with what the line tells of whose it is."""

    who: str
    text: str
    rank: int | None = None
    pid: int | None = None  # as the process itself knows it
    clock: str = ""  # as it stands there
    at: float | None = None  # in seconds of a year of 366 days, local time


def read_printed_warnings(
    lines: Iterable[str], since: float | None = None, with_untimed: bool = False
) -> tuple[PrintedWarning, ...]:
    """Return what libraries say in a log, in its order: what was said after `since`
    (`find_time_of_year`), and of lines without a time those that are to count `with_untimed`.
    """
    found = []
    for raw in lines:
        for who, hint, pattern in _KNOWN:
            line = strip_colours(raw[:4096]) if hint in raw else ""
            match = pattern.search(line) if line else None
            if match is not None:
                one = _parse(who, match["text"], line)
                if with_untimed if one.at is None else not _is_before(one.at, since):
                    found.append(one)
                break
    return tuple(found[-_MOST:])


def _is_before(at: float, since: float | None) -> bool:
    return since is not None and is_earlier(at, since)


def _parse(who: str, text: str, line: str) -> PrintedWarning:
    rank, process = _RANK.search(line), _PROCESS.search(line)
    clock, at = _parse_clock(line)
    return PrintedWarning(
        who,
        mask_text(text.strip())[:_LONGEST],
        int(rank[1]) if rank else None,
        int(process["pid"] or process["nccl"]) if process else None,
        clock,
        at,
    )


def _parse_clock(line: str) -> tuple[str, float | None]:
    match = next((m for one in _TIMES if (m := one.search(line))), None)
    if match is None:
        return "", None
    text = f"2000-{int(match['month']):02}-{match['day']}T{match['clock']}+00:00"
    try:
        return match["clock"], datetime.fromisoformat(text).timestamp()
    except ValueError:
        return "", None


def select_recent(
    warnings: Iterable[tuple[PrintedWarning, RankId | None]], now: float
) -> list[tuple[PrintedWarning, RankId | None]]:
    """Return what still holds at `now` (`find_time_of_year`): who could not connect for some time
    is connected since then, unless it said so just before.
    """
    return [
        (one, rank)
        for one, rank in warnings
        if one.who != _CONNECTS or one.at is None or not is_earlier(one.at, now - _RECENT)
    ]


def describe_printed_warnings(
    warnings: Sequence[tuple[PrintedWarning, RankId | None]],
) -> list[str]:
    """Return in sentences who said what, how often, and when last."""
    found: dict[tuple[str, str], list[tuple[PrintedWarning, RankId | None]]] = {}
    for one, rank in warnings:
        found.setdefault((one.who, one.text), []).append((one, rank))
    told = [_describe(who, text, lines) for (who, text), lines in found.items()]
    more = len(told) - _MOST_TOLD
    return told[:_MOST_TOLD] + ([f"libraries say {more} more things"] if more > 0 else [])


def _describe(who: str, text: str, lines: Sequence[tuple[PrintedWarning, RankId | None]]) -> str:
    ranks = sorted({rank for _, rank in lines if rank is not None})
    where = f" on {format_ranks(ranks)}" if ranks else ""
    clock = next((one.clock for one, _ in reversed(lines) if one.clock), "")
    times = f"{len(lines)} times" if len(lines) > 1 else ""
    when = ", ".join(filter(None, (times, f"{'last ' * bool(times)}at {clock}" if clock else "")))
    return f"{who} says{where}{f' ({when})' if when else ''}: {text}"


def assign_warnings(
    warnings: Iterable[PrintedWarning],
    ranks: Iterable[RankId],
    processes: Mapping[int, RankId],
    owner: RankId | None,
) -> Iterator[tuple[PrintedWarning, RankId | None]]:
    """Yield the warnings with their ranks: as the line tells, by its process (`processes`, as they
    know themselves), or whose file it is (`owner`); None for those of nobody that is known.
    """
    numbers = set(ranks)
    for one in warnings:
        if one.rank is not None:
            if one.rank in numbers:
                yield one, one.rank
        elif one.pid is not None:
            yield one, processes.get(one.pid, owner)
        else:
            yield one, owner
