"""Whether some ranks only reach a line, as the job's source shows: below `if rank == 0:`, behind an
early return, in a handler of signals, in a function for one rank alone.

Two ranks that do not make the same call cannot tell which of them is wrong; their source often
can.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import pairwise

from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import Collective, CollectiveLog
from .source_tree import find_enclosing_nodes, find_name, parse_source, read_source

MOST_SITES = 64  # of a log: the last ones
# What is called so is the number of a rank: names, attributes, functions, variables.
_NUMBER_OF_A_RANK = re.compile(
    r"(?:^|_)rank(?:$|_)|^(?:LOCAL_|GLOBAL_|NODE_|GROUP_)?RANK$|^process_index$"
    r"|^(?:SLURM_PROCID|SLURM_LOCALID|OMPI_COMM_WORLD_(?:LOCAL_)?RANK|PMI_RANK)$"
)
# What is called so is true on some ranks alone.
_TRUE_ON_SOME = re.compile(
    r"^is_(?:main|master|global_zero|local_main|world_process|first|leader)"
    r"|(?:main|master)_process$|is_rank"
)
# Functions.
_ASKS_FOR_A_RANK = re.compile(r"(?:\w+_)?rank(?:_(?:number|num|no|id|idx|index))?$")
_READS_ENVIRONMENT = ("get", "getenv")
_CONVERTS = ("int", "abs")
_ONLY_SOME = re.compile(r"rank_zero_only|on_(?:local_)?(?:main_|last_)?process\b")
_LONGEST_CONDITION = 80  # characters of a condition


def add_conditions(log: CollectiveLog) -> CollectiveLog:
    """Return a log with the conditions under which its latest calls are made: that at the job's own
    line, else at the innermost of those from which that was called. May block.
    """
    latest = list(dict.fromkeys(_list_places(o) for o in reversed(log.operations) if o.file))
    known = {places: _find_first_condition(places) for places in latest[:MOST_SITES]}
    if not any(known.values()):
        return log
    operations = [replace(o, condition=known.get(_list_places(o), "")) for o in log.operations]
    return replace(log, operations=tuple(operations))


_Places = tuple[tuple[str, str], ...]  # file and line of each


def _list_places(one: Collective) -> _Places:
    """Return the lines of the job's own by which a call came, innermost first."""
    site = (one.origin or one.site).partition(" ")[0].rpartition(":")[2]
    callers = (place.partition(" ")[0].rpartition(":") for place in one.path)
    return ((one.file, site), *((file, line) for file, _, line in callers if file[:1] == "/"))


def _find_first_condition(places: _Places) -> str:
    return next(filter(None, (find_condition_at(*place) for place in places)), "")


@lru_cache(maxsize=256)
def find_condition_at(file: str, line: str) -> str:
    """Return the same as find_condition, of a line of a file. May block."""
    source = read_source(file)
    return find_condition(source, int(line)) if source and line.isdecimal() else ""


def find_condition(source: str, line: int) -> str:
    """Return the condition under which only some ranks come by `line`, "" if there is none that
    the source shows, or if it is no Python. Never raises.
    """
    parsed = _parse_with_names(source)
    if parsed is None:
        return ""
    tree, names = parsed
    way = find_enclosing_nodes(tree, line)
    for outer, inner in reversed(list(pairwise(way))):
        found = _condition_between(outer, inner, names)
        if found:
            return found
    return ""


@lru_cache(maxsize=64)
def _parse_with_names(source: str) -> tuple[ast.AST, _RankNames] | None:
    tree = parse_source(source)
    return None if tree is None else (tree, _find_rank_names(tree))


@dataclass(frozen=True)
class _RankNames:
    """Names of a source that tell ranks apart: variables and attributes that are the number of a
    rank, those that are true on some ranks alone, and functions that only a signal calls, with the
    call that makes them a handler.
    """

    numbers: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    handlers: Mapping[str, str] = field(default_factory=dict)


def _find_rank_names(tree: ast.AST) -> _RankNames:
    """Return the names that are set to the number of a rank, or to what compares it."""
    counted = _find_counters(tree)  # for r in range(world)
    assigned = [pair for node in ast.walk(tree) for pair in _list_assigned(node)]
    assigned = [(name, value) for name, value in assigned if name not in counted]
    names = _RankNames(_find_spawned_numbers(tree) - counted)
    for _ in range(2):  # is_main = rank == 0; quiet = not is_main
        numbers, flags = set(names.numbers), set(names.flags)
        numbers |= {name for name, value in assigned if _is_rank_number(value, names)}
        flags |= {name for name, value in assigned if _is_true_on_some(value, names)}
        names = _RankNames(frozenset(numbers), frozenset(flags))
    return replace(names, handlers=_find_signal_handlers(tree))


def _find_counters(tree: ast.AST) -> set[str]:
    """Return the names that are set in each round of a loop, or of a comprehension."""
    loops = ast.For | ast.AsyncFor | ast.comprehension
    targets = [node.target for node in ast.walk(tree) if isinstance(node, loops)]
    return {name for one in targets for node in ast.walk(one) if (name := find_name(node))}


def _list_assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a statement, or `:=`, assigns to, each with its value."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or node.value is None:
        return
    value = node.value
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=False)  # rank, size = get_rank(), 8
            yield from ((name, given) for one, given in pairs if (name := find_name(one)))
        elif name := find_name(target):
            yield name, value


_SPAWNS = ("spawn", "start_processes")  # torch.multiprocessing's, which give the number first


def _find_spawned_numbers(tree: ast.AST) -> frozenset[str]:
    """Return the first parameters of the functions that torch.multiprocessing starts as ranks."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    started = {find_name(one.args[0]) for one in calls if find_name(one.func) in _SPAWNS} - {""}
    defined = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(f.args.args[0].arg for f in defined if f.name in started and f.args.args)


_HANDLES_SIGNALS = ("signal", "add_signal_handler")  # signal.signal, asyncio's loop


def _find_signal_handlers(tree: ast.AST) -> dict[str, str]:
    """Return the functions that are given to signals, by name, and the call that does it; without
    those that are called besides. A signal need not come to all ranks.
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {find_name(one.func) for one in calls}
    given = {
        find_name(one.args[1]): ast.unparse(one)
        for one in calls
        if find_name(one.func) in _HANDLES_SIGNALS and len(one.args) > 1
    }
    return {name: call for name, call in given.items() if name and name not in called}


def _is_rank_number(node: ast.AST, names: _RankNames) -> bool:
    """Return True for an expression whose value is the number of a rank, or computed from it. What
    is made by a function that gets it need not differ between ranks.
    """
    if isinstance(node, ast.NamedExpr):
        return _is_rank_number(node.value, names)
    name = find_name(node)
    if name:
        return name in names.numbers or _NUMBER_OF_A_RANK.search(name) is not None
    if isinstance(node, ast.Call):
        function = find_name(node.func)
        if function in _CONVERTS:
            return any(_is_rank_number(one, names) for one in node.args)
        if function in _READS_ENVIRONMENT:
            return any(_names_a_rank(one) for one in node.args[:1])
        return _ASKS_FOR_A_RANK.match(function) is not None
    if isinstance(node, ast.Subscript):
        return _names_a_rank(node.slice) and find_name(node.value) == "environ"
    if isinstance(node, ast.BinOp):
        return _is_rank_number(node.left, names) or _is_rank_number(node.right, names)
    return False


def _names_a_rank(node: ast.AST) -> bool:
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and _NUMBER_OF_A_RANK.search(text) is not None


def _is_true_on_some(node: ast.AST, names: _RankNames) -> bool:
    """Return True for a condition that is not the same on all ranks."""
    if isinstance(node, ast.BoolOp):
        return any(_is_true_on_some(one, names) for one in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _is_true_on_some(node.operand, names)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(_is_rank_number(one, names) for one in sides) and not _asks_whether_ranked(node)
    if isinstance(node, ast.IfExp):  # shard = [] if rank == 2 else rows
        return _is_true_on_some(node.test, names)
    name = find_name(node.func if isinstance(node, ast.Call) else node)
    if name and (name in names.flags or _TRUE_ON_SOME.search(name)):
        return True
    return not isinstance(node, ast.Call) and _is_rank_number(node, names)


def _asks_whether_ranked(node: ast.Compare) -> bool:
    """Return True for a comparison that asks whether there are ranks at all: with -1, with None,
    or whether a number is not negative.
    """
    for operator, one in zip(node.ops, node.comparators, strict=True):
        if isinstance(operator, ast.Is | ast.IsNot | ast.In | ast.NotIn):
            return True
        text = ast.unparse(one)
        if text == "-1" or (text == "0" and isinstance(operator, ast.GtE | ast.Lt)):
            return True
    return False


def _condition_between(outer: ast.AST, inner: ast.AST, names: _RankNames) -> str:
    """Return the condition that stands between two nodes of a way."""
    test = outer.test if isinstance(outer, ast.If | ast.While | ast.IfExp) else None
    if test is not None and inner is not test and _is_true_on_some(test, names):
        in_else = isinstance(outer, ast.If | ast.While) and inner in outer.orelse
        return _shorten_condition(f"{'else of ' if in_else else ''}if {ast.unparse(test)}")
    if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) and inner in outer.body:
        for decorator in outer.decorator_list:
            if _ONLY_SOME.search(ast.unparse(decorator)):
                return _shorten_condition(f"@{ast.unparse(decorator)}")
        if outer.name in names.handlers:
            return _shorten_condition(names.handlers[outer.name])
    for body in _bodies(outer):
        if inner in body:
            return _find_early_exit(body[: body.index(inner)], names)
    return ""


def _bodies(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


def _find_early_exit(statements: Sequence[ast.stmt], names: _RankNames) -> str:
    """Return the condition under which others leave before: `if rank != 0: return`."""
    for one in reversed(statements):
        if not isinstance(one, ast.If) or one.orelse or not _is_true_on_some(one.test, names):
            continue
        if isinstance(one.body[-1], ast.Return | ast.Continue | ast.Break):
            return _shorten_condition(f"not left before by: if {ast.unparse(one.test)}")
    return ""


def _shorten_condition(text: str) -> str:
    return text if len(text) <= _LONGEST_CONDITION else text[: _LONGEST_CONDITION - 4] + " ..."
