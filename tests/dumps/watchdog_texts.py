"""What NCCL's watchdog prints, in the words of each version of torch, with numbers made up.

There is no GPU here to record them on. The words are those of ProcessGroupNCCL.cpp as public issues
show them: pytorch/pytorch#118369 (2.1), hiyouga/LlamaFactory#7396 and mila-iqia/milabench#269
(2.4), XPixelGroup/BasicSR#737 (2.5), NVIDIA/nccl#1730, huggingface/accelerate#3861 and
OpenRLHF/OpenRLHF#1126 (2.7 and later), pytorch/pytorch#183656 (what has started).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_CAUGHT = (
    "[Rank {group_rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, "
    "OpType={kind}, {size}Timeout(ms)=600000) ran for 600{rank:03} milliseconds before timing out."
)
_SIZE = "NumelIn={elements}, NumelOut={elements}, "
_STATUS: Mapping[str, str] = {
    "2.1": "",
    "2.4": (
        "[PG {group}{desc_24}Rank {group_rank}] Exception (either an error or timeout) detected by "
        "watchdog at work: {number}, last enqueued NCCL work: {enqueued}, last completed NCCL "
        "work: {completed}."
    ),
    "2.5": (
        "[PG ID 0 PG GUID {group}{desc} Rank {group_rank}] Exception (either an error or timeout) "
        "detected by watchdog at work: {number}, last enqueued NCCL work: {enqueued}, last "
        "completed NCCL work: {completed}."
    ),
    "2.7": (
        "[PG ID 0 PG GUID {group}{desc} Rank {group_rank}]  failure detected by watchdog at work "
        "sequence id: {number} PG status: last enqueued work: {enqueued}, last completed work: "
        "{completed}"
    ),
    "2.13": (
        "[PG ID 0 PG GUID {group}{desc} Rank {group_rank}]  failure detected by watchdog at work "
        "sequence id: {number} PG status: last enqueued work: {enqueued}, last started work: "
        "{number} ({kind}), last completed work: {completed}"
    ),
}
VERSIONS = tuple(_STATUS)
TELLING = VERSIONS[1:]  # those that say what was enqueued last
_SIGNAL = (
    "Received a dump signal due to a collective timeout from {whom} and we will try our best to "
    "dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: "
    "{completed}.This is most likely caused by incorrect usages of collectives, e.g., wrong sizes "
    "used across ranks, the order of collectives is not same for all ranks or the scheduled "
    "collective, for some reason, didn't run. Additionally, this can be caused by GIL deadlock or "
    "other reasons such as network errors or bugs in the communications library (e.g. NCCL), etc. "
)


def _prefix(rank: int, version: str, second: float) -> str:
    if version == "2.1":
        return "[E ProcessGroupNCCL.cpp:828] "
    return f"[rank{rank}]:[E321 02:07:{second:012.9f} ProcessGroupNCCL.cpp:607] "


def timed_out(
    rank: int,
    number: int,
    enqueued: int,
    version: str = "2.7",
    kind: str = "ALLREDUCE",
    group: tuple[str, str] = ("0", "default_pg"),
    group_rank: int | None = None,
    elements: int = 466_119_168,
) -> list[str]:
    """The lines of a rank whose operation `number` timed out, which had enqueued `enqueued`."""
    name, desc = group
    told = {
        "rank": rank,
        "group_rank": rank if group_rank is None else group_rank,
        "number": number,
        "kind": kind,
        "size": "" if version == "2.1" else _SIZE.format(elements=elements),
        "group": name,
        "desc": f"({desc})" if desc else "",
        "desc_24": f" ({desc}) " if desc else " ",
        "enqueued": enqueued,
        "completed": number - 1,
    }
    caught = _CAUGHT.format(**told)
    lines = [_prefix(rank, version, 8.4 + rank / 100) + caught]
    if _STATUS[version]:
        lines.append(_prefix(rank, version, 8.5 + rank / 100) + _STATUS[version].format(**told))
    lines.append("terminate called after throwing an instance of 'c10::DistBackendError'")
    return [*lines, f"  what():  {caught}"]


def signalled(rank: int, enqueued: int, completed: int, second: float = 9.1) -> list[str]:
    """The lines of a rank that another one's timeout made dump: it says how far it came itself."""
    tag = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
    words = _SIGNAL.format(whom=" rank 1", enqueued=enqueued, completed=completed)
    return [
        _prefix(rank, "2.7", second - 0.1)
        + tag
        + "Observed flight recorder dump signal from another rank via TCPStore.",
        _prefix(rank, "2.7", second) + tag + words,
    ]


def text(*parts: Iterable[str]) -> bytes:
    """A log of these lines, with others around them as logs have."""
    lines = ["epoch 3:  41%|####      | 820/2000 [07:24<10:39,  1.84it/s, loss=2.29]"]
    for part in parts:
        lines += part
    return "\n".join([*lines, "W0321 02:07:12 torch/distributed/elastic ... SIGTERM", ""]).encode()
