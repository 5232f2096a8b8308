"""What a job's libraries and drivers are: whether all nodes have the same, and whether a library is
preloaded that answers in the place of others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from ..base.node_differences import compare_nodes, word_difference
from ..base.words import format_count
from ..evidence.process import read_preloaded
from .examination import Check, CheckFamily, Finding, Setting, ok, problem, warning

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
    differ = False
    for one in compare_nodes(by_host):
        differ = True
        said, must = word_difference(one, "none"), one.name in _MUST_AGREE
        yield (problem if must else warning)(
            said, "the same environment on all nodes" if must else "look whether it is meant"
        )
    if not differ:
        told = next(iter(by_host.values()), {})
        all_of_it = ", ".join(f"{name} {version}" for name, version in told.items())
        many = f" on {format_count(len(by_host), 'node')}" if len(by_host) > 1 else ""
        yield ok(f"{all_of_it}{many}")


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
