"""What the job's source says around a line: whether some ranks only reach it (`if rank == 0:`, a
handler of signals), whether it stands below an `except`, and what it calls; of locks
`locks_in_source` tells.

Two ranks that do not make the same call cannot tell which of them is wrong; their source often
can.

A rank that sleeps below an `except` has failed before, and no log needs to say so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import pairwise
from operator import add, mod, sub
from typing import NamedTuple

from ..base.lazy_dataclass import dataclass
from ..base.library_functions import Role, has_role
from ..base.masking import mask_text
from ..base.process_facts import Frame, Look, Thread
from ..base.rank_facts import Collective, CollectiveLog, RankFacts
from .asked_actors import add_asked_methods
from .locks_in_source import add_code_locks
from .source_tree import find_enclosing_nodes, parse_source, read_source

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
    return next(filter(None, (_find_condition_at(*place) for place in places)), "")


@lru_cache(maxsize=256)
def _find_condition_at(file: str, line: str) -> str:
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
    names = _RankNames()
    for _ in range(2):  # is_main = rank == 0; quiet = not is_main
        numbers, flags = set(names.numbers), set(names.flags)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                targets = {name for one in node.targets if (name := _name_of(one))}
                numbers |= targets if _is_rank_number(node.value, names) else set()
                flags |= targets if _is_true_on_some(node.value, names) else set()
        names = _RankNames(frozenset(numbers), frozenset(flags))
    return replace(names, handlers=_find_signal_handlers(tree))


_HANDLES_SIGNALS = ("signal", "add_signal_handler")  # signal.signal, asyncio's loop


def _find_signal_handlers(tree: ast.AST) -> dict[str, str]:
    """Return the functions that are given to signals, by name, and the call that does it; without
    those that are called besides. A signal need not come to all ranks.
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {_name_of(one.func) for one in calls}
    given = {
        _name_of(one.args[1]): ast.unparse(one)
        for one in calls
        if _name_of(one.func) in _HANDLES_SIGNALS and len(one.args) > 1
    }
    return {name: call for name, call in given.items() if name and name not in called}


def _name_of(node: ast.AST) -> str:
    """Return the name of a variable, or of an attribute whatever it belongs to; else ""."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_rank_number(node: ast.AST, names: _RankNames) -> bool:
    """Return True for an expression whose value is the number of a rank, or computed from it. What
    is made by a function that gets it need not differ between ranks.
    """
    name = _name_of(node)
    if name:
        return name in names.numbers or _NUMBER_OF_A_RANK.search(name) is not None
    if isinstance(node, ast.Call):
        function = _name_of(node.func)
        if function in _CONVERTS:
            return any(_is_rank_number(one, names) for one in node.args)
        if function in _READS_ENVIRONMENT:
            return any(_names_a_rank(one) for one in node.args[:1])
        return _ASKS_FOR_A_RANK.match(function) is not None
    if isinstance(node, ast.Subscript):
        return _names_a_rank(node.slice) and _name_of(node.value) == "environ"
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
    name = _name_of(node.func if isinstance(node, ast.Call) else node)
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
        return _shorten(f"{'else of ' if in_else else ''}if {ast.unparse(test)}")
    if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) and inner in outer.body:
        for decorator in outer.decorator_list:
            if _ONLY_SOME.search(ast.unparse(decorator)):
                return _shorten(f"@{ast.unparse(decorator)}")
        if outer.name in names.handlers:
            return _shorten(names.handlers[outer.name])
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
            return _shorten(f"not left before by: if {ast.unparse(one.test)}")
    return ""


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_CONDITION else text[: _LONGEST_CONDITION - 4] + " ..."


MOST_FRAMES = 8  # of the main thread, the innermost of the job's own
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/(?:lib|lib64)/python\d+(?:\.\d+)?/|^<")
_LONGEST_HANDLER = 80  # characters


def add_source_code(facts: RankFacts) -> RankFacts:
    """Return a rank with what the job's own source says of where it is: the conditions of its
    collectives, the handlers and conditions around its frames, the methods of actors that it and
    what it started wait for, and the locks of the threads of these. May block.
    """
    return replace(
        facts,
        looks=tuple(
            add_asked_methods(add_code_locks(add_code_around(look))) for look in facts.looks
        ),
        children=tuple(
            tuple(add_asked_methods(add_code_locks(look)) for look in looks)
            for looks in facts.children
        ),
        collectives=tuple(map(add_conditions, facts.collectives)),
    )


def add_code_around(look: Look) -> Look:
    """Return a look with the handlers of exceptions in which the main thread's own lines stand, the
    conditions by which only some ranks come to them, and what they call. May block.
    """
    main = look.main
    if main is None:
        return look
    own = [f for f in main.frames if not f.native and not _LIBRARY.search(f.file)]
    known = {frame: found for frame in own[:MOST_FRAMES] if any(found := _find_code_around(frame))}
    known.update(_find_loops_of_steps(main.frames))
    if not known:
        return look
    threads = tuple(_add_to_thread(one, known) if one is main else one for one in look.threads)
    return replace(look, threads=threads)


def _find_loops_of_steps(frames: Sequence[Frame]) -> dict[Frame, _CodeAround]:
    """Return the loops over the steps of a training in which libraries stand."""
    there = (f for f in frames if has_role(f.file, f.name, Role.GOES_ROUND_STEPS))
    found = {frame: find_loop(read_source(frame.file), frame.line) for frame in there}
    return {frame: _CodeAround("", "", (), (), (), loop) for frame, loop in found.items() if loop}


class _CodeAround(NamedTuple):
    """What the source says of a line; all of it is false where it says nothing."""

    handler: str
    condition: str
    calls: tuple[str, ...]
    given: tuple[str, ...]
    counters: tuple[tuple[str, int], ...]
    loop: tuple[int, ...]
    catches: str = ""
    handed_out: tuple[tuple[str, int], ...] = ()


def _add_to_thread(thread: Thread, known: dict[Frame, _CodeAround]) -> Thread:
    frames = (replace(f, **known[f]._asdict()) if f in known else f for f in thread.frames)
    return replace(thread, frames=tuple(frames))


def _find_code_around(frame: Frame) -> _CodeAround:
    source = read_source(frame.file)
    condition = _find_condition_at(frame.file, str(frame.line))
    if not source:
        return _CodeAround("", condition, (), (), (), ())
    return _CodeAround(
        find_handler(source, frame.line),
        condition,
        find_calls(source, frame.line),
        find_given_texts(source, frame.line),
        tuple(one for one in frame.numbers if one[0] in find_loop_counters(source, frame.line)),
        find_loop(source, frame.line),
        find_catcher(source, frame.line),
        find_handed_out(source, frame.line, frame.numbers),
    )


@lru_cache(maxsize=1 << 12)  # ranks stand in few different lines
def find_handler(source: str, line: int) -> str:
    """Return the handler of exceptions in which `line` stands, "except OSError"; "" for none in
    the same function, or for what is no Python. Never raises.
    """
    tree = parse_source(source)
    for node in reversed(find_enclosing_nodes(tree, line)) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return ""
        if isinstance(node, ast.ExceptHandler) and any(_is_in_body(one, line) for one in node.body):
            kind = f" {ast.unparse(node.type)}" if node.type is not None else ""
            return f"except{kind}"[:_LONGEST_HANDLER]
    return ""


def _is_in_body(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


@lru_cache(maxsize=1 << 12)
def find_calls(source: str, line: int) -> tuple[str, ...]:
    """Return the functions that `line` calls, as they are written there ("one.stdout.readline"; of
    what is called on a value without a name the attribute alone), in the order of the source. ()
    for what is no Python. Never raises.
    """
    names = (_name_of_function(call.func) for call in _list_calls(source, line))
    return tuple(dict.fromkeys(name for name in names if name))


_LONGEST_TEXT = 80  # characters of a text that is kept


@lru_cache(maxsize=1 << 12)
def find_given_texts(source: str, line: int) -> tuple[str, ...]:
    """Return the short texts that `line` gives to what it calls, by themselves or in a list, with
    secrets masked. Never raises.
    """
    found = []
    for call in _list_calls(source, line):
        for given in (*call.args, *(one.value for one in call.keywords)):
            for one in given.elts if isinstance(given, ast.List | ast.Tuple) else [given]:
                text = one.value if isinstance(one, ast.Constant) else None
                if isinstance(text, str) and len(text) <= _LONGEST_TEXT:
                    found.append(mask_text(text))
    return tuple(found)


_Loop = ast.For | ast.AsyncFor | ast.While
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# Parameters that are called so tell the round of a loop further out.
_ROUND = re.compile(r"(?:global_)?(?:step|epoch|round|iteration|batch_idx)")


@lru_cache(maxsize=1 << 12)
def find_loop_counters(source: str, line: int) -> tuple[str, ...]:
    """Return the variables that count the rounds of the loops around `line` in its function: those
    that a `for` sets, those that the loop itself adds 1 to, and parameters that are called so
    ("step"). () for what is no Python. Never raises.
    """
    tree = parse_source(source)
    way = find_enclosing_nodes(tree, line) if tree is not None else []
    first = max((n for n, node in enumerate(way) if isinstance(node, _Function)), default=0)
    found: list[str] = []
    for node, inner in pairwise(way[first:]):
        if isinstance(node, _Function):
            arguments = (one.arg for one in (*node.args.args, *node.args.kwonlyargs))
            found += [name for name in arguments if _ROUND.fullmatch(name)]
        if isinstance(node, _Loop) and inner in node.body:
            found += _list_counters(node)
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=1 << 12)
def find_loop(source: str, line: int) -> tuple[int, ...]:
    """Return the first and the last line of the innermost loop whose body `line` is in, of the same
    function; () for none, or for what is no Python. Never raises.
    """
    loop = _find_innermost_loop(source, line)
    return (loop.lineno, loop.end_lineno or loop.lineno) if loop is not None else ()


def _find_innermost_loop(source: str, line: int) -> _Loop | None:
    tree = parse_source(source)
    way = find_enclosing_nodes(tree, line) if tree is not None else []
    for node, inner in reversed(list(pairwise(way))):
        if isinstance(node, _Function):
            return None
        if isinstance(node, _Loop) and inner in node.body:
            return node
    return None


_CATCHES_ALL = ("", "Exception", "BaseException")
_LEAVES = ast.Raise | ast.Return | ast.Break


@lru_cache(maxsize=1 << 12)
def find_catcher(source: str, line: int) -> str:
    """Return how the innermost loop around `line` catches whatever a round of it raises and goes on
    with the next one, "except Exception"; "" where it does not. Never raises.
    """
    loop = _find_innermost_loop(source, line)
    for node in ast.walk(loop) if loop is not None else ():
        if not isinstance(node, ast.ExceptHandler):
            continue
        kind = ast.unparse(node.type) if node.type is not None else ""
        if kind in _CATCHES_ALL and not any(isinstance(one, _LEAVES) for one in ast.walk(node)):
            return f"except {kind}".strip()
    return ""


_HANDS_OUT = ("irecv", "isend")  # functions of torch.distributed, which return a handle
_BATCHED = "P2POp"  # such a function, a tensor, a rank
_PEERS = ("src", "dst", "peer")
_COMPUTES: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mod: mod,
}


@lru_cache(maxsize=1 << 12)
def find_handed_out(
    source: str, line: int, numbers: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, int], ...]:
    """Return the sends and receives that the function around `line` hands out, each with the rank
    that it is for: `numbers` are what its variables are now. () where `line` waits for no handle,
    or where a rank is given in another way. Never raises.
    """
    if not any(name.rpartition(".")[2] == "wait" for name in find_calls(source, line)):
        return ()
    tree = parse_source(source)
    way = find_enclosing_nodes(tree, line) if tree is not None else []
    function = next((node for node in reversed(way) if isinstance(node, _Function)), None)
    found = []
    for call in ast.walk(function) if function is not None else ():
        if not isinstance(call, ast.Call):
            continue
        name, given = _name_of(call.func), call.args[1:2]
        if name == _BATCHED:
            name, given = _name_of(call.args[0]) if call.args else "", call.args[2:3]
        if name not in _HANDS_OUT:
            continue
        given = given or [one.value for one in call.keywords if one.arg in _PEERS]
        peer = _compute(given[0], dict(numbers)) if given else None
        if peer is None:
            return ()
        found.append((name, peer))
    return tuple(dict.fromkeys(found))


def _compute(node: ast.expr, numbers: Mapping[str, int]) -> int | None:
    """Return the number that an expression is, None where it is made of more than sums."""
    if isinstance(node, ast.Name):
        return numbers.get(node.id)
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    compute = _COMPUTES.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if compute is None or not isinstance(node, ast.BinOp):
        return None
    left, right = _compute(node.left, numbers), _compute(node.right, numbers)
    if left is None or right is None or (compute is mod and not right):
        return None
    return compute(left, right)


def _list_counters(loop: _Loop) -> list[str]:
    target = [] if isinstance(loop, ast.While) else [loop.target]
    found = [n.id for one in target for n in ast.walk(one) if isinstance(n, ast.Name)]
    left: list[ast.AST] = [*loop.body]
    while left:
        node = left.pop(0)
        if isinstance(node, _Loop | _Function):
            continue
        left += ast.iter_child_nodes(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found += [node.target.id] if ast.unparse(node.value) == "1" else []
    return found


def _list_calls(source: str, line: int) -> list[ast.Call]:
    """Return the calls whose functions stand on `line`, in the order of the source."""
    tree = parse_source(source)
    way = find_enclosing_nodes(tree, line) if tree is not None else ()
    statement = next((node for node in reversed(way) if isinstance(node, ast.stmt)), None)
    there = [
        node
        for node in (ast.walk(statement) if statement is not None else ())
        if isinstance(node, ast.Call)
        and node.func.lineno <= line <= (node.func.end_lineno or node.func.lineno)
    ]
    return sorted(there, key=lambda one: (one.func.lineno, one.func.col_offset))


def _name_of_function(node: ast.expr) -> str:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        names.append(node.id)
    return ".".join(reversed(names if isinstance(node, ast.Name) else names[:1]))
