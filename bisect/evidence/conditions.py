"""Whether a line of the job's source is reached by some ranks only: `if rank == 0:`.

Two ranks that do not make the same call cannot tell which of them is wrong; their source often can.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from ..facts import Collective, CollectiveLog
from .source import source_of, tree_of, way_to

MOST_SITES = 64  # of a log: the last ones
# What names, attributes and variables are called that differ between ranks.
_OF_A_RANK = re.compile(
    r"(?:^|_)rank(?:$|_)|^is_(?:main|master|global_zero|local_main|world_process|first|leader)"
    r"|^(?:LOCAL_|GLOBAL_|NODE_|GROUP_)?RANK$|main_process|process_index|is_rank",
)
_ONLY_SOME = re.compile(r"rank_zero_only|on_main_process|on_local_main_process|on_last_process")
_LONGEST = 80  # characters of a condition


def with_conditions(log: CollectiveLog) -> CollectiveLog:
    """Return a log with the conditions under which its latest calls are made. May block."""
    sites = list(dict.fromkeys(_place(o) for o in reversed(log.operations) if o.file))
    known = {place: _condition_of(*place) for place in sites[:MOST_SITES]}
    if not any(known.values()):
        return log
    operations = [replace(o, condition=known.get(_place(o), "")) for o in log.operations]
    return replace(log, operations=tuple(operations))


def _place(one: Collective) -> tuple[str, str]:
    return one.file, one.origin or one.site


def _condition_of(file: str, site: str) -> str:
    line = site.partition(" ")[0].rpartition(":")[2]
    source = source_of(file)
    return condition_at(source, int(line)) if source and line.isdecimal() else ""


def condition_at(source: str, line: int) -> str:
    """Return the condition under which only some ranks come by `line`, "" if there is none that
    the source shows, or if it is no Python. Never raises.
    """
    parsed = _parsed(source)
    if parsed is None:
        return ""
    tree, telling = parsed
    way = way_to(tree, line)
    for outer, inner in reversed(list(pairwise(way))):
        found = _condition(outer, inner, telling)
        if found:
            return found
    return ""


@lru_cache(maxsize=64)
def _parsed(source: str) -> tuple[ast.AST, frozenset[str]] | None:
    tree = tree_of(source)
    return None if tree is None else (tree, frozenset(_telling_names(tree)))


def _telling_names(tree: ast.AST) -> set[str]:
    """Return the variables that are set from something that differs between ranks."""
    found: set[str] = set()
    for _ in range(2):  # is_main = rank == 0; quiet = not is_main
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _tells(node.value, found):
                found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def _tells(node: ast.AST, telling: Set[str]) -> bool:
    """Return True if an expression speaks of a rank, and not only of how many there are."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and (part.id in telling or _OF_A_RANK.search(part.id)):
            return True
        if isinstance(part, ast.Attribute) and _OF_A_RANK.search(part.attr):
            return True
        text = part.value if isinstance(part, ast.Constant) else None
        if isinstance(text, str) and _OF_A_RANK.search(text):
            return True
    return False


def _condition(outer: ast.AST, inner: ast.AST, telling: Set[str]) -> str:
    """Return the condition that stands between two nodes of a way."""
    test = outer.test if isinstance(outer, ast.If | ast.While | ast.IfExp) else None
    if test is not None and inner is not test and _tells(test, telling):
        in_else = isinstance(outer, ast.If | ast.While) and inner in outer.orelse
        return _worded(f"{'else of ' if in_else else ''}if {ast.unparse(test)}")
    if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) and inner in outer.body:
        for decorator in outer.decorator_list:
            if _ONLY_SOME.search(ast.unparse(decorator)):
                return _worded(f"@{ast.unparse(decorator)}")
    for body in _bodies(outer):
        if inner in body:
            return _left_before(body[: body.index(inner)], telling)
    return ""


def _bodies(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


def _left_before(statements: Sequence[ast.stmt], telling: Set[str]) -> str:
    """Return the condition under which others leave before: `if rank != 0: return`."""
    for one in reversed(statements):
        if not isinstance(one, ast.If) or one.orelse or not _tells(one.test, telling):
            continue
        if isinstance(one.body[-1], ast.Return | ast.Continue | ast.Break):
            return _worded(f"not left before by: if {ast.unparse(one.test)}")
    return ""


def _worded(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
