"""The machine, or what a container lets the job have of it, and its GPUs as NVML sees them, or as
the kernel tells of AMD's: read once, when a clock ran out.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..base.cgroups import count_oom_kills, limits
from ..base.deadline import call_with_limit, run_command
from ..base.rank_facts import Gpu, GpuError, MachineFacts
from .gpus.gpu_errors import KERNEL_LOG, read_gpu_errors

NVML_PROBE = Path(__file__).parent / "gpus" / "nvml_probe.py"
AMD_PROBE = Path(__file__).parent / "gpus" / "amd_probe.py"
NO_DRIVER = "There is no driver of GPUs here: nothing is known of GPUs."
_NO_ANSWER = "The NVIDIA driver gave no answer in time: it may itself be what hangs."
_NO_ANSWER_OF_AMDS = "AMD's driver gave no answer in time: it may itself be what hangs."
_STATES = {
    "lost": "NVML says that it is lost",
    "reset required": "NVML says that it must be reset",
    "no handle": "NVML does not find it",
    "silent": "",
}
_FOR_ANSWERS = 0.75  # of the time; the rest is for Python to start, and to say what came
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu")  # Linux, WSL, Jetson
_AMD_DRIVER = "/dev/kfd"


def has_gpu_driver() -> bool:
    """Return whether a driver of GPUs is loaded, NVIDIA's or AMD's."""
    return any(map(os.path.exists, (*_DRIVER_FILES, _AMD_DRIVER)))


def is_amds(gpu: Gpu) -> bool:
    """Return whether a GPU is one of AMD's, by the name that its driver gives it."""
    return gpu.name.startswith("AMD")


async def read_gpus(limit: float) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return (the GPUs, in sentences what is not known of them), within `limit` seconds."""
    if any(map(os.path.exists, _DRIVER_FILES)):
        # -P: next to the probe lies our own code, which is no place to import from.
        command = [sys.executable, "-P", str(NVML_PROBE), "--limit", f"{limit * _FOR_ANSWERS:g}"]
        return await _ask_probe(command, limit, "NVML", _NO_ANSWER)
    if os.path.exists(_AMD_DRIVER):
        return await read_amd_gpus(limit)
    return (), (NO_DRIVER,)


async def read_amd_gpus(limit: float, root: str = "/") -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return the same of AMD's GPUs; `root` is where the kernel's files are."""
    command = [sys.executable, "-P", str(AMD_PROBE), "--limit", f"{limit * _FOR_ANSWERS:g}"]
    return await _ask_probe([*command, "--root", root], limit, "AMD's driver", _NO_ANSWER_OF_AMDS)


async def _ask_probe(
    command: list[str], limit: float, who: str, no_answer: str
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    try:
        ran = await call_with_limit(run_command, command, limit, limit=limit + 0.3, key=who)
    except OSError:
        return (), (f"{who} could not be asked: nothing is known of GPUs.",)
    except TimeoutError:  # it cannot even be ended
        return (), (no_answer,)
    return parse_gpus(ran.out) if ran.status is not None else ((), (no_answer,))


def parse_gpus(text: bytes | str) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return the GPUs in what the probe printed, and in sentences what is not known of them."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and isinstance(data.get("missing"), str):
        return (), (data["missing"],)
    if isinstance(data, dict) and data.get("silent") is True:
        there = ", ".join(_texts(data.get("listed")))
        return (), (f"{_NO_ANSWER} It has GPUs at {there}." if there else _NO_ANSWER,)
    if not isinstance(data, list):
        return (), ("NVML gave no answer that can be read: nothing is known of GPUs.",)
    gpus = tuple(_parse_gpu(one) for one in data if isinstance(one, dict))
    return gpus, tuple(f"{_name_gpu(gpu)}: {gpu.said}." for gpu in gpus if gpu.said)


def _parse_gpu(data: dict[str, Any]) -> Gpu:
    pids, memory = data.get("pids"), data.get("memory")
    by_whom = pids if isinstance(pids, dict) else {}
    used, total = memory if isinstance(memory, list) and len(memory) == 2 else (None, None)
    state = next((name for name in _STATES if name == data.get("state")), "")
    mode, mig, persistence = (data.get(k) for k in ("compute_mode", "mig", "persistence"))
    width, most = (*_whole_numbers(data.get("pcie_width")), None, None)[:2]
    return Gpu(
        index=_whole_number(data.get("index")) or 0,
        name=str(data.get("name") or ""),
        busy=_scaled_number(data.get("busy"), 100),
        power=_scaled_number(data.get("power"), 1000),
        power_limit=_scaled_number(data.get("power_limit"), 1000),
        memory_used=_whole_number(used),
        memory_total=_whole_number(total),
        pids=_whole_numbers(by_whom.get("here")),
        host_pids=_whole_numbers(by_whom.get("host")),
        bus=str(data.get("bus") or ""),
        uuid=str(data.get("uuid") or ""),
        state=state,
        said=_say_what_is_wrong(data, state),
        compute_mode=mode if isinstance(mode, str) else "",
        mig=mig if isinstance(mig, bool) else None,
        slowed_by=_texts(data.get("slowed_by")),
        memory_errors=_whole_number(data.get("memory_errors")),
        rows=_texts(data.get("rows")),
        links_down=_whole_numbers(data.get("links_down")),
        pcie_width=width,
        pcie_width_most=most,
        persistence=persistence if isinstance(persistence, bool) else None,
        fabric=str(data.get("fabric") or ""),
        recovery=str(data.get("recovery") or ""),
        moments=tuple(_parse_moments(data.get("moments"))),
        driver=str(data.get("driver") or ""),
    )


def _parse_moments(found: object) -> Iterator[tuple[float, float]]:
    for one in found if isinstance(found, list) else ():
        numbers = _whole_numbers(one)
        if len(numbers) == 2:
            yield numbers[0] / 100, numbers[1] / 1000


def _say_what_is_wrong(data: dict[str, Any], state: str) -> str:
    """Return in words what a GPU did not answer, "" if it answered everything it can."""
    errors = data.get("errors")
    said = {str(k): str(v) for k, v in errors.items()} if isinstance(errors, dict) else {}
    words = "; ".join(f"{names}: {text}" for text, names in _group_errors(said).items())
    if state == "silent":
        asked = str(data.get("asked") or "").replace("_", " ")
        return f"the driver gave no answer{f' (asked for {asked})' if asked else ''}"
    if state:
        says = str(data.get("says") or _STATES[state])
        return f"{says} ({words})" if words else says
    return f"NVML did not answer all ({words})" if words else ""


def _group_errors(said: dict[str, str]) -> dict[str, str]:
    """Return by each error the questions that it was the answer to."""
    found: dict[str, list[str]] = {}
    for name, text in said.items():
        found.setdefault(text, []).append(name.replace("_", " "))
    return {text: ", ".join(names) for text, names in found.items()}


def _name_gpu(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.bus})" if gpu.bus else f"GPU {gpu.index}"


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _whole_numbers(value: object) -> tuple[int, ...]:
    return tuple(one for one in value if type(one) is int) if isinstance(value, list) else ()


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _scaled_number(value: object, unit: int) -> float | None:
    number = _whole_number(value)
    return None if number is None else number / unit


async def read_machine(
    limit: float = 1.0,
    since: float | None = None,
    kernel_log: str = KERNEL_LOG,
    is_monitor: bool = False,
) -> MachineFacts:
    """Return what there is of cores, memory, interfaces, name servers and GPUs, within `limit`
    seconds and a little, with the errors of GPUs since then (monotonic clock; None: none are looked
    for); what did not come in time is said in `missing`. `is_monitor`: our Python is that of the
    ranks, and so is what is installed.
    """
    (about, missing), (found, no_gpus), (errors, unseen), installed = await asyncio.gather(
        _read_host(limit),
        read_gpus(limit),
        _read_gpu_errors(limit, since, kernel_log),
        _read_installed(limit if is_monitor else 0.0),
    )
    return MachineFacts(
        **about,  # type: ignore[arg-type]  # by name
        gpus=found,
        driver=next((gpu.driver for gpu in found if gpu.driver), ""),
        gpu_errors=errors,
        installed=installed,
        missing=(*missing, *no_gpus, *unseen),
    )


async def _read_installed(limit: float) -> dict[str, str]:
    """Return the versions of what is installed, {} where that cannot be read in time."""
    if not limit:
        return {}
    from .installed_versions import read_versions

    try:
        return await call_with_limit(read_versions, limit=limit, key="installed versions")
    except Exception:  # packages that are half removed, or on a disk that hangs
        return {}


async def _read_gpu_errors(
    limit: float, since: float | None, path: str
) -> tuple[tuple[GpuError, ...], tuple[str, ...]]:
    """Return (what the driver reported of GPUs since then, in sentences what is not known of it);
    nothing where there is no driver.
    """
    if since is None or (path == KERNEL_LOG and not has_gpu_driver()):
        return (), ()
    try:
        errors, missing = await call_with_limit(
            read_gpu_errors, since, path, limit, limit=limit + 0.3, key="kernel log"
        )
    except TimeoutError:
        return (), ("The kernel's log could not be read in time.",)
    return errors, ((missing,) if missing else ())


async def _read_host(limit: float) -> tuple[dict[str, object], list[str]]:
    found: dict[str, object] = {}
    missing: list[str] = []
    try:
        await call_with_limit(_fill_in_host, found, missing, limit=limit, key="host")
    except TimeoutError:
        missing.append("Not all of the machine could be read in time.")
    except Exception as error:
        missing.append(f"Not all of the machine could be read ({error!r}).")
    return dict(found), list(missing)


def _fill_in_host(found: dict[str, object], missing: list[str]) -> None:
    """Fill in what there is, first what cannot block."""
    own = _read_text("/proc/self/cgroup")
    allowed = limits(own)
    found["oom_kills"] = count_oom_kills(own)
    cores = len(os.sched_getaffinity(0))
    found["cores"] = cores if allowed.cores is None else max(1, min(cores, int(allowed.cores)))
    sizes = parse_meminfo(_read_text("/proc/meminfo"))
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
    found["nameservers"] = parse_resolv_conf(_read_text("/etc/resolv.conf"))


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


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
