"""The machine, or what a container lets the job have of it: read once, when a clock ran out."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from ..facts import MachineFacts
from .aside import aside
from .cgroups import limits
from .gpus import gpus


async def machine(limit: float = 1.0) -> MachineFacts:
    """Return what there is of cores, memory, interfaces, name servers and GPUs, within `limit`
    seconds and a little; what did not come in time is said in `missing`.
    """
    (about, missing), (found, no_gpus) = await asyncio.gather(_host(limit), gpus(limit))
    sentences = tuple(sentence for sentence in (*missing, no_gpus) if sentence)
    return MachineFacts(**about, gpus=found, missing=sentences)  # type: ignore[arg-type]  # by name


async def _host(limit: float) -> tuple[dict[str, object], list[str]]:
    found: dict[str, object] = {}
    missing: list[str] = []
    try:
        await aside(_read, found, missing, limit=limit, key="host")
    except TimeoutError:
        missing.append("Not all of the machine could be read in time.")
    except Exception as error:
        missing.append(f"Not all of the machine could be read ({error!r}).")
    return dict(found), list(missing)


def _read(found: dict[str, object], missing: list[str]) -> None:
    """Fill in what there is, first what cannot block."""
    allowed = limits(_text("/proc/self/cgroup"))
    cores = len(os.sched_getaffinity(0))
    found["cores"] = cores if allowed.cores is None else max(1, min(cores, int(allowed.cores)))
    sizes = parse_meminfo(_text("/proc/meminfo"))
    for name, key, limit in (
        ("memory_total", "MemTotal", allowed.memory),
        ("memory_available", "MemAvailable", allowed.memory_free),
    ):
        known = [size for size in (sizes.get(key), limit) if size is not None]
        found[name] = min(known, default=None)
    try:
        found["interfaces"] = tuple(name for _, name in socket.if_nameindex())
    except OSError:
        missing.append("The network interfaces could not be listed.")
    try:
        shm = os.statvfs("/dev/shm")
        found["shm_total"], found["shm_free"] = (
            shm.f_blocks * shm.f_frsize,
            shm.f_bavail * shm.f_frsize,
        )
    except OSError:
        missing.append("There is no /dev/shm.")
    found["nameservers"] = parse_resolv_conf(_text("/etc/resolv.conf"))


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the sizes in the text of /proc/meminfo, in bytes."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        value, _, unit = rest.strip().partition(" ")
        if value.isdecimal() and unit == "kB":
            found[name] = int(value) * 1024
    return found


def parse_resolv_conf(text: str) -> tuple[str, ...]:
    """Return the name servers in the text of a resolv.conf (man 5 resolv.conf), in their order."""
    words = [line.split() for line in text.splitlines()]
    return tuple(line[1] for line in words if len(line) > 1 and line[0] == "nameserver")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
