"""What the job's source says around a line: whether it stands below an `except`, in which loop it
is, and what it calls; whether some ranks only reach it `rank_conditions` tells, and of locks
`locks_in_source`.

A rank that sleeps below an `except` has failed before, and no log needs to say so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from operator import add, mod, sub
from typing import NamedTuple

from ..base.library_functions import Role, has_role
from ..base.masking import mask_text
from ..base.process_facts import Frame, Look, Thread
from ..base.rank_facts import RankFacts
from .asked_actors import add_asked_methods
from .locks_in_source import add_code_locks
from .rank_conditions import add_conditions, find_condition_at
from .rank_parents import waits_for_ends
from .source_tree import find_enclosing_nodes, find_name, parse_source, read_source

MOST_FRAMES = 8  # of the main thread, the innermost of the job's own
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/(?:lib|lib64)/python\d+(?:\.\d+)?/|^<")
_LONGEST_HANDLER = 80  # characters


def add_source_code(facts: RankFacts) -> RankFacts:
    """Return a rank with what the job's own source says of where it is: the conditions of its
    collectives, the handlers and conditions around its frames, the methods of actors that it and
    what it started wait for, the locks of the threads of these, and who beside it waits for ends.
    May block.
    """
    return replace(
        facts,
        looks=tuple(
            add_asked_methods(add_code_locks(add_code_around(look))) for look in facts.looks
        ),
        children=tuple(
            tuple(_add_code_of_child(look, look.pid in facts.beside) for look in looks)
            for looks in facts.children
        ),
        collectives=tuple(map(add_conditions, facts.collectives)),
    )


def _add_code_of_child(look: Look, is_beside: bool) -> Look:
    found = add_asked_methods(add_code_locks(look))
    return add_awaited_ends(found) if is_beside else found


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


def add_awaited_ends(look: Look) -> Look:
    """Return a look with whether the main thread sleeps in a loop that only the end of a child of
    its process ends. May block.
    """
    main = look.main
    inner = next((f for f in main.frames if not f.native), None) if main is not None else None
    if main is None or inner is None or _LIBRARY.search(inner.file):
        return look
    if not waits_for_ends(read_source(inner.file), inner.line):
        return look
    frames = tuple(replace(f, awaits_ends=True) if f is inner else f for f in main.frames)
    waits = replace(main, frames=frames)
    return replace(look, threads=tuple(waits if one is main else one for one in look.threads))


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
    turns: bool = False


def _add_to_thread(thread: Thread, known: dict[Frame, _CodeAround]) -> Thread:
    frames = (replace(f, **known[f]._asdict()) if f in known else f for f in thread.frames)
    return replace(thread, frames=tuple(frames))


def _find_code_around(frame: Frame) -> _CodeAround:
    source = read_source(frame.file)
    condition = find_condition_at(frame.file, str(frame.line))
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
        has_root_of_round(source, frame.line),
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


_ROOTS = ("src", "dst", "group_src", "group_dst")


@lru_cache(maxsize=1 << 12)
def has_root_of_round(source: str, line: int) -> bool:
    """Return whether `line` gives a collective a root, its second argument, that follows from what
    a `for` around it sets, in the same function. Never raises.
    """
    tree = parse_source(source)
    way = find_enclosing_nodes(tree, line) if tree is not None else []
    first = max((n for n, node in enumerate(way) if isinstance(node, _Function)), default=0)
    loops = [n for n, inner in pairwise(way[first:]) if isinstance(n, _Loop) and inner in n.body]
    names: set[str] = set()
    for loop in loops:
        names |= _list_names(loop.target) if not isinstance(loop, ast.While) else set()
        made = sorted((n for n in ast.walk(loop) if isinstance(n, ast.Assign)), key=_line_of)
        for one in made:
            if _list_names(one.value) & names:
                names |= {name for target in one.targets for name in _list_names(target)}
    roots = [
        given
        for call in _list_calls(source, line)
        for given in (*call.args[1:2], *(k.value for k in call.keywords if k.arg in _ROOTS))
    ]
    return any(_list_names(root) & names for root in roots)


def _list_names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _line_of(node: ast.stmt) -> int:
    return node.lineno


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
        name, given = find_name(call.func), call.args[1:2]
        if name == _BATCHED:
            name, given = find_name(call.args[0]) if call.args else "", call.args[2:3]
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
