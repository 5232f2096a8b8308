"""Who builds a torch extension: torch/utils/cpp_extension.py, and the compilers below it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..facts import Frame, RankFacts, Wait
from .frames import short, worded
from .view import seen

BUILD_LOCK = "the lock file of a torch extension build"  # where no local variable tells its path
_SOURCE = "torch/utils/cpp_extension.py"
_BUILDING = ("_run_ninja_build", "_write_ninja_file_and_build_library")
_COMPILERS = re.compile(
    r"ninja|make|cmake|(?:\S+-)?(?:g\+\+|gcc|c\+\+|cc|clang(?:\+\+)?)(?:-\d+)?|nvcc|hipcc|icpx?"
    r"|cc1|cc1plus|cicc|ptxas|cudafe\+\+|collect2|ld|as"
)


def builds(facts: RankFacts) -> str:
    """Return by what it is seen that a rank builds: a compiler below it, or its own frame; "" if it
    does not.
    """
    for looks in facts.children:
        if looks and looks[-1].state not in "ZX" and _COMPILERS.fullmatch(looks[-1].name):
            return f"{looks[-1].name} ({looks[-1].pid})"
    view = seen(facts.looks)
    frame = next(filter(_is_building, view.frames), None) if view else None
    return worded(frame) if frame else ""


def _is_building(frame: Frame) -> bool:
    name = short(frame.name)
    ours = name in _BUILDING or name.startswith("_build_extension")
    return ours and frame.file.endswith(_SOURCE)


def waits_for_somebody(wait: Wait | None) -> bool:
    """Return whether a rank waits for a build of which no look tells who has its lock: stacks
    without local variables name no file, and on a busy machine the search for who has it open comes
    too late. A file that really is nobody's is told once nobody builds.
    """
    return wait is not None and wait.kind == "lock" and wait.detail == BUILD_LOCK


def builders(ranks: Iterable[RankFacts]) -> list[int]:
    """Return the living ranks that build."""
    return [one.rank for one in ranks if one.alive and builds(one)]
