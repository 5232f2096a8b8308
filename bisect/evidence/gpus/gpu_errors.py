"""Errors of GPUs and NVSwitches that their driver wrote to the kernel's log: NVIDIA's Xid and SXid,
and what AMD's says without a number.

The numbers mean what NVIDIA's Xid catalogue says (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid
Errors with the Xid Catalog", numbers up to 172), and for switches the chapter on SXid of its Fabric
Manager User Guide. The lines have the form of public logs: NVIDIA/open-gpu-kernel-modules#446,
#1150, #1118, #1045 and #1284 (Xid), NVIDIA/NVSentinel#155 (off the bus without a number),
NVIDIA/nvtrust#124 and leptonai/gpud#338 (SXid). Those of AMD's driver are in the kernel's source
(drivers/gpu/drm/amd/amdgpu: amdgpu_device.c, amdgpu_job.c, amdgpu_ras.c, gmc_v9_0.c, mes_v12_0.c,
and amdkfd/kfd_device_queue_manager.c) and in public logs: ROCm/legacy-rocm-build#4021.

The kernel's log is read record by record from /dev/kmsg without waiting (dev-kmsg in the kernel's
Documentation/ABI/testing): "6,339,5140900,-;NVRM: loading ...", priority, number, microseconds of
the kernel's clock. Who may not read it (kernel.dmesg_restrict, most containers) does not see these
errors, and is told; NVML then tells what the driver asks for after them (nvml_probe.py, recovery).
NVML's events (nvmlEventSetWait) are no other way: they come only to who waited for them before the
error, and nothing of ours runs before something stands still.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator

from ...base.rank_facts import GpuError, GpuErrorKind

KERNEL_LOG = "/dev/kmsg"
_RECORD = 1 << 14  # bytes; a record has at most 8 KiB, and a buffer below that is an error
_MOST_BYTES = 1 << 25
_MOST_ERRORS = 32  # the last ones
_LONGEST = 200  # characters of what an error says
# The kernel stamps lines by a clock that nobody sets right: 100 parts in a million are a minute in
# a week.
_SLACK = 60.0

_LOST: GpuErrorKind = "lost"
_STOPPED: GpuErrorKind = "stopped"
_MEMORY: GpuErrorKind = "memory"
_LINK: GpuErrorKind = "link"
_ACCESS: GpuErrorKind = "access"
_OTHER: GpuErrorKind = "other"
_XIDS: dict[int, tuple[GpuErrorKind, str]] = {
    8: (_STOPPED, "GPU stopped processing"),
    11: (_ACCESS, "invalid or corrupted push buffer stream"),
    13: (_ACCESS, "graphics engine exception"),
    31: (_ACCESS, "GPU memory page fault"),
    32: (_ACCESS, "invalid or corrupted push buffer stream"),
    37: (_OTHER, "driver firmware error"),
    38: (_STOPPED, "driver firmware error"),
    **dict.fromkeys((39, 40, 41), (_ACCESS, "copy engine exception")),
    43: (_ACCESS, "a program's channel was stopped"),
    44: (_STOPPED, "fault during a context switch"),
    45: (_OTHER, "preemptive cleanup, due to earlier errors"),
    46: (_STOPPED, "GPU stopped processing"),
    48: (_MEMORY, "double bit ECC error"),
    54: (_LOST, "auxiliary power is not connected"),
    60: (_OTHER, "video processor exception"),
    61: (_STOPPED, "internal microcontroller breakpoint or warning"),
    62: (_STOPPED, "internal microcontroller halt"),
    63: (_MEMORY, "a memory row is to be remapped, or a page retired"),
    64: (_MEMORY, "remapping a row, or retiring a page, failed"),
    **dict.fromkeys((66, 67), (_OTHER, "illegal access by the driver")),
    **dict.fromkeys((68, 83, 84, 88, 89, 96, 97, 98), (_OTHER, "video decoder error")),
    69: (_ACCESS, "graphics engine class error"),
    **dict.fromkeys((70, 71, 72, 75, 76, 77, 85), (_ACCESS, "copy engine exception")),
    74: (_LINK, "NVLink error"),
    78: (_LOST, "a virtual GPU cannot be started"),
    79: (_LOST, "GPU has fallen off the bus"),
    80: (_ACCESS, "corrupted data sent to the GPU"),
    92: (_MEMORY, "high rate of single bit ECC errors"),
    93: (_OTHER, "the GPU's own settings were written too often"),
    94: (_MEMORY, "contained memory error"),
    95: (_MEMORY, "uncontained memory error"),
    **dict.fromkeys((106, 107), (_OTHER, "test message")),
    109: (_STOPPED, "context switch timeout"),
    110: (_STOPPED, "security fault"),
    119: (_STOPPED, "GSP does not answer"),
    120: (_STOPPED, "GSP error"),
    121: (_OTHER, "corrected errors of the link to the processor (C2C)"),
    **dict.fromkeys(range(126, 136), (_ACCESS, "copy engine exception")),
    136: (_LINK, "NVLink training failed"),
    137: (_ACCESS, "illegal access to the memory of another GPU, over NVLink"),
    140: (_MEMORY, "ECC error that was not recovered"),
    141: (_OTHER, "CUDA fast path error"),
    143: (_LOST, "GPU initialization failed"),
    **dict.fromkeys(range(144, 151), (_LINK, "NVLink error")),
    151: (_STOPPED, "key rotation error"),
    155: (_LINK, "NVLink is down, by software"),
    156: (_MEMORY, "a part of the GPU is to be retired"),
    157: (_OTHER, "no part is left to retire a bad one"),
    158: (_STOPPED, "GPU fatal timeout"),
    159: (_OTHER, "error of the link to the processor (CHI)"),
    160: (_MEMORY, "a memory channel is to be retired"),
    161: (_MEMORY, "retiring a memory channel failed"),
    **dict.fromkeys(range(162, 166), (_OTHER, "smoothing of power has changed")),
    166: (_LINK, "NVLink traffic that is not encrypted"),
    167: (_STOPPED, "fatal timeout on PCIe"),
    168: (_OTHER, "less memory than there should be"),
    169: (_STOPPED, "internal microcontroller halt"),
    171: (_MEMORY, "uncorrectable error of its DRAM"),
    172: (_MEMORY, "uncorrectable error of its SRAM"),
}
# Of these a GPU recovers by itself, or at its next reset.
_MILD = (63, 92, 156, 160)
_RECOVERY = 154  # says what the driver asks for after other errors
_ASKS_FOR = re.compile(
    r"recovery action changed from .{0,60} to 0x[0-9a-f]+ \((?P<what>[^)]{1,40})\)"
)
_ACTIONS: dict[str, GpuErrorKind] = {
    **dict.fromkeys(("GPU Reset Required", "Node Reboot Required", "PF FLR"), _STOPPED),
    "Drain P2P": _LINK,
}
_PLACE = r"(?:PCI:)?(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-f])?"
_XID = re.compile(
    rf"NVRM: Xid \({_PLACE}[^)]{{0,40}}\): (?P<code>\d{{1,4}}),? ?"
    r"(?:pid=(?P<pid>\d{1,9}|[^,]{0,40}), )?(?:name=[^,]{0,80}, )?(?P<text>.*)"
)
_OFF_THE_BUS = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_PLACE}.*fallen off the bus")
_SXID = re.compile(
    rf"nvidia-nvswitch\d{{1,3}}: SXid \({_PLACE}\): (?P<code>\d{{4,6}}), "
    r"(?P<fatal>Fatal|Non-fatal), (?P<text>.*)"
)
_WORDS = ("NVRM", "SXid", "amdgpu")  # one is in each line that is looked at
_AMDS_LINE = re.compile(
    r"amdgpu (?P<bus>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-9a-f]: (?:amdgpu: )?(?P<text>.*)"
)
_UNCORRECTED = r"[1-9]\d{0,18} (?:new )?uncorrectable hardware errors detected in"
_AMDS_ERRORS: tuple[tuple[re.Pattern[str], GpuErrorKind, str], ...] = (
    (re.compile("device lost from bus"), _LOST, "GPU has fallen off the bus"),
    (
        re.compile(r"GPU Recovery Failed|GPU reset end with ret = -"),
        _STOPPED,
        "the driver could not reset the GPU",
    ),
    (re.compile(r"GPU reset begin"), _STOPPED, "the driver resets the GPU"),
    (
        re.compile(r"ring \S{1,40} timeout"),
        _STOPPED,
        "a queue of the GPU has not advanced in time",
    ),
    (
        re.compile(
            r"(?i)might be in (?:an )?unrecoverable state|failed to respond to msg="
            r"|queue preemption (?:failed|time out)|failed to evict process queues"
        ),
        _STOPPED,
        "the GPU's scheduler does not answer",
    ),
    (
        re.compile(rf"{_UNCORRECTED} umc block"),
        _MEMORY,
        "errors of its memory that were not corrected",
    ),
    (
        re.compile(rf"{_UNCORRECTED} xgmi\w* block"),
        _LINK,
        "errors of its links to other GPUs (XGMI)",
    ),
    (
        re.compile(rf"{_UNCORRECTED}|(?i:uncorrectable) hardware error\(ERREVENT"),
        _STOPPED,
        "uncorrectable hardware error",
    ),
    (
        re.compile(r"\] (?:no-)?retry page fault .{0,80}for process .{0,40}? pid (?P<pid>\d{1,9})"),
        _ACCESS,
        "GPU memory page fault",
    ),
)
_STAMP = re.compile(r"\d{1,4},\d{1,20},(?P<at>\d{1,20}),[^;]{0,40};(?P<text>.*)")


def read_gpu_errors(
    since: float | None = None, path: str = KERNEL_LOG, limit: float = 1.0
) -> tuple[tuple[GpuError, ...], str]:
    """Return (errors since then on the monotonic clock, oldest first; why nothing is known of them,
    in a sentence, or ""). Of errors that came many times there are the last ones. Waits for nobody;
    takes `limit` seconds at most.
    """
    try:
        text = _read_log(path, time.monotonic() + limit)
    except OSError as error:
        reason = error.strerror or "error"
        return (
            (),
            f"The kernel's log could not be read ({reason}): errors of GPUs (Xid) are not seen.",
        )
    return parse_kernel_log(text.splitlines(), since), ""


def _read_log(path: str, until: float) -> str:
    """Return what the log holds. Raises OSError."""
    parts: list[bytes] = []
    size = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        while size < _MOST_BYTES and time.monotonic() < until:
            try:
                part = os.read(descriptor, _RECORD)
            except BlockingIOError:  # that was the last one
                break
            except BrokenPipeError:  # records were overwritten meanwhile: the next is there
                continue
            if not part:
                break
            parts.append(part)
            size += len(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode(errors="replace")


def parse_kernel_log(lines: Iterable[str], since: float | None = None) -> tuple[GpuError, ...]:
    """Return the errors in records of the kernel's log."""
    found: dict[GpuError, None] = {}
    for line in lines:
        if any(word in line for word in _WORDS) and (stamp := _STAMP.match(line)):
            at = int(stamp["at"]) / 1e6
            one = _parse_error(stamp["text"], at)
            if one is not None and (since is None or at >= since - _SLACK):
                found[one] = None
    return tuple(_leave_out_echoes(found))[-_MOST_ERRORS:]


def _parse_error(text: str, at: float) -> GpuError | None:
    if match := _XID.search(text):
        code = int(match["code"])
        pid = match["pid"] or ""
        number = int(pid) if pid.isdecimal() else None
        says = " ".join(match["text"].split())[:_LONGEST]
        kind, meaning = _find_meaning(code, says)
        mild = code in _MILD or " Nonfatal " in f" {says} "
        bus = _format_bus(match)
        return GpuError(bus, code, kind, meaning or says, at, number, says, mild=mild)
    if match := _OFF_THE_BUS.search(text):
        return GpuError(_format_bus(match), 79, *_XIDS[79], at)
    if match := _SXID.search(text):
        is_fatal = match["fatal"] == "Fatal"
        says = " ".join(match["text"].split())[:_LONGEST]
        kind = _LINK if is_fatal else _OTHER
        meaning = f"{match['fatal'].lower()}: {says}"
        return GpuError(_format_bus(match), int(match["code"]), kind, meaning, at, of_switch=True)
    return _parse_amds_error(text, at)


def _parse_amds_error(text: str, at: float) -> GpuError | None:
    line = _AMDS_LINE.search(text)
    for pattern, kind, meaning in _AMDS_ERRORS if line is not None else ():
        if line is not None and (match := pattern.search(line["text"])):
            pid = int(match.groupdict().get("pid") or 0) or None
            says = " ".join(line["text"].split())[:_LONGEST]
            return GpuError(_format_bus(line), 0, kind, meaning, at, pid, says)
    return None


def _find_meaning(code: int, says: str) -> tuple[GpuErrorKind, str]:
    """Return what a number means, "" for one that nobody has told the meaning of."""
    asked = _ASKS_FOR.search(says) if code == _RECOVERY else None
    if asked is not None:
        return _ACTIONS.get(asked["what"], _OTHER), f"the driver asks for: {asked['what']}"
    if code == _RECOVERY:
        return _OTHER, "what is needed to recover the GPU has changed"
    return _XIDS.get(code, (_OTHER, ""))


def _format_bus(match: re.Match[str]) -> str:
    """Return a place as the kernel writes it, without the function: "0000:65:00"."""
    domain, _, rest = match["bus"].lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _leave_out_echoes(errors: Iterable[GpuError]) -> Iterator[GpuError]:
    """Yield the errors, of those that a device repeats the first alone."""
    seen: set[tuple[str, str, int | None]] = set()
    for one in errors:
        key = one.bus, one.title if one.code == 0 else str(one.code), one.pid
        if key not in seen:
            seen.add(key)
            yield one


def describe_gpu_error(error: GpuError) -> str:
    """Return an error in words: "GPU 0000:65:00: Xid 79, GPU has fallen off the bus"."""
    return f"{'NVSwitch' if error.of_switch else 'GPU'} {error.bus}: {error.title}"
