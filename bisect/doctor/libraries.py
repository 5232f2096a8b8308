"""What a job's libraries and drivers are: whether all nodes have the same, and whether a library is
preloaded that answers in the place of others.

Read without asking a driver and without importing anything: the files that NVIDIA's driver has in
/proc, and what the installed packages say of themselves. It is the Python that runs the doctor
whose packages are read: start it as the job would be started.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from ..base.words import format_count
from ..evidence.process import read_preloaded
from .examination import Check, CheckFamily, Finding, Setting, ok, problem, warning

_DRIVER = Path("/proc/driver/nvidia/version")
_GPUS = Path("/proc/driver/nvidia/gpus")
_PROCESSORS = Path("/proc/cpuinfo")  # NCCL chose by its maker how to send (NVIDIA/nccl#1136)
_PROCESSOR = re.compile(r"^model name\s*: (\S.{0,60}?)\s*$", re.MULTILINE)
_DRIVER_VERSION = re.compile(r"(?:Kernel Module|for \S{1,20})\s+(\d{3}[\d.]{1,20})")
_MODEL = re.compile(r"^Model:\s+(\S.{0,60}?)\s*$", re.MULTILINE)
# Packages by what their versions are called; of several the first that is there.
_PACKAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("torch", ("torch",)),
    ("NCCL", tuple(f"nvidia-nccl-cu{n}" for n in (13, 12, 11))),
    (
        "CUDA runtime",
        ("nvidia-cuda-runtime", *(f"nvidia-cuda-runtime-cu{n}" for n in (13, 12, 11))),
    ),
)
# Ranks of which one has another do not understand one another.
_MUST_AGREE = ("torch", "NCCL")
_MOST = 12  # things that a node tells of itself
_LONGEST = 80  # characters of a version
# Allocators, and libraries that compilers want first: they answer for nothing that a job hangs in.
_HARMLESS = re.compile(
    r"lib(?:jemalloc|tcmalloc|mimalloc|stdc\+\+|gcc_s|gomp|iomp5|omp|asan|tsan|ubsan|lsan"
    r"|nvidia-ml|SegFault)\b[^/]*$"
)


# ---- reading -------------------------------------------------------------------------------------


def read_versions() -> dict[str, str]:
    """Return what this node has, by what it is called: {"driver": "570.158.01", ...}."""
    found = {"Python": platform.python_version()}
    if model := _PROCESSOR.search(_read_text(_PROCESSORS)):
        found["processor"] = model[1]
    if driver := parse_driver_version(_read_text(_DRIVER)):
        found["driver"] = driver
    if gpus := _count_models(_list_informations()):
        found["GPUs"] = gpus
    for name, packages in _PACKAGES:
        version = next((v for one in packages if (v := _find_version(one))), "")
        if version:
            found[name] = version
    return found


def parse_driver_version(text: str) -> str:
    """Return the version in /proc/driver/nvidia/version, "" for none."""
    match = _DRIVER_VERSION.search(text.partition("\n")[0])
    return match[1] if match else ""


def _count_models(informations: list[str]) -> str:
    """Return "8 x NVIDIA H100 80GB HBM3"."""
    models = Counter(m[1] for text in informations if (m := _MODEL.search(text)))
    return ", ".join(f"{count} x {model}" for model, count in sorted(models.items()))


def _list_informations() -> list[str]:
    try:
        return [_read_text(one / "information") for one in sorted(_GPUS.iterdir())]
    except OSError:
        return []


def _find_version(package: str) -> str:
    try:
        return metadata.version(package)
    except Exception:  # a package that is half removed raises nearly anything
        return ""


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[: 1 << 16]
    except OSError:
        return ""


def as_versions(said: object) -> dict[str, str]:
    """Return the versions in what another node said, cut to what may be there."""
    if not isinstance(said, dict):
        return {}
    pairs = [(k, v) for k, v in said.items() if isinstance(k, str) and isinstance(v, str)]
    return {k[:_LONGEST]: v[:_LONGEST] for k, v in pairs[:_MOST]}


def read_preloads(setting: Setting) -> tuple[str, ...]:
    """Return the libraries that the loader loads before all others, into us as into the job."""
    return read_preloaded(os.getpid())


# ---- judged --------------------------------------------------------------------------------------


def compare_versions(by_host: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Judge whether nodes have the same, by what each told of itself."""
    names = dict.fromkeys(name for told in by_host.values() for name in told)
    differ = False
    for name in names:
        hosts: dict[str, list[str]] = {}
        for host, told in by_host.items():
            hosts.setdefault(told.get(name, "none"), []).append(host)
        if len(hosts) > 1:
            differ = True
            usual = max(hosts, key=lambda value: len(hosts[value]))
            words = [f"{usual} on {_name_hosts(hosts.pop(usual))}"]
            words += [f"{value} on {_name_hosts(some)}" for value, some in sorted(hosts.items())]
            said = f"{name}: {', '.join(words)}"
            must = name in _MUST_AGREE
            yield (problem if must else warning)(
                said, "the same environment on all nodes" if must else "look whether it is meant"
            )
    if not differ:
        told = next(iter(by_host.values()), {})
        all_of_it = ", ".join(f"{name} {version}" for name, version in told.items())
        many = f" on {format_count(len(by_host), 'node')}" if len(by_host) > 1 else ""
        yield ok(f"{all_of_it}{many}")


def _name_hosts(hosts: list[str]) -> str:
    some = ", ".join(hosts[:3])
    return f"{some} and {len(hosts) - 3} more" if len(hosts) > 3 else some


def judge_preloads(setting: Setting, facts: tuple[str, ...]) -> Iterator[Finding]:
    """Judge what is preloaded."""
    strange = [path for path in facts if not _HARMLESS.search(path)]
    if strange:
        yield warning(
            f"{', '.join(strange[:3])} answers in the place of functions of other libraries, in "
            "every process of the job",
            "to try it: without LD_PRELOAD (env -u LD_PRELOAD ...) and /etc/ld.so.preload",
        )
    else:
        yield ok(", ".join(facts) or "none")


PRELOADED = CheckFamily(
    "Preloaded libraries",
    (
        Check(
            id="preloaded",
            title="no library is preloaded that answers in the place of others",
            why="A limit on GPU memory, a proxy or a profiler that is preloaded hands each call "
            "on, or waits in it.",
            read=read_preloads,
            judge=judge_preloads,
        ),
    ),
)
