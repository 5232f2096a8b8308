"""For whose methods of Ray's actors a thread waits, as the job's source says: `ray.get` is given
references, and no frame and no call of the kernel tells of which actor they are.

The line that waits, or the lines of the same function from which its names come, have
`actor.method.remote(...)`; which class has a method of that name the same file often tells.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from ..base.library_functions import Role, has_role
from ..base.process_facts import Frame, Look, Thread
from .source_tree import find_enclosing_nodes, parse_source, read_source

_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/(?:lib|lib64)/python\d+(?:\.\d+)?/|^<")
_MOST_STEPS = 4  # from a name to where it comes from
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def add_asked_methods(look: Look) -> Look:
    """Return a look; where its main thread waits for Ray, with the methods for whose answers, at
    the innermost frame of the job's own. May block.
    """
    main = look.main
    frames = main.frames if main is not None else ()
    waits = any(has_role(one.file, one.name, Role.AWAITS_ACTORS) for one in frames)
    own = next((one for one in frames if not one.native and not _LIBRARY.search(one.file)), None)
    if main is None or own is None or not waits:
        return look
    asked = find_asked_methods(read_source(own.file), own.line)
    if not asked:
        return look
    return replace(look, threads=tuple(_add(one, main, own, asked) for one in look.threads))


def _add(thread: Thread, main: Thread, own: Frame, asked: tuple[str, ...]) -> Thread:
    if thread is not main:
        return thread
    frames = tuple(replace(one, asks=asked) if one is own else one for one in thread.frames)
    return replace(thread, frames=frames)


@lru_cache(maxsize=1 << 10)
def find_asked_methods(source: str, line: int) -> tuple[str, ...]:
    """Return the methods of actors for whose answers `line` waits: "Buffer.add" where one class of
    the source has such a method, else "add"; and the tasks, by the names of their functions. () for
    none, and for what is no Python. Never raises.
    """
    tree = parse_source(source) if source else None
    way = find_enclosing_nodes(tree, line) if tree is not None else ()
    statement = next((node for node in reversed(way) if isinstance(node, ast.stmt)), None)
    if tree is None or statement is None:
        return ()
    around = next((node for node in reversed(way) if isinstance(node, _Function)), tree)
    looked_at, found = _heads(statement), dict[str, None]()
    for _ in range(_MOST_STEPS):
        methods = (_qualify(tree, name) for node in looked_at for name in _list_methods(node))
        tasks = (name for node in looked_at for name in _list_tasks(tree, node))
        found = dict.fromkeys((*methods, *tasks))
        names = {n.id for node in looked_at for n in ast.walk(node) if isinstance(n, ast.Name)}
        looked_at = list(_list_origins(around, names))
        if found or not looked_at:
            break
    return tuple(found)


def _heads(statement: ast.stmt) -> list[ast.AST]:
    """Return what a statement computes itself, without the statements inside of it."""
    return [node for node in ast.iter_child_nodes(statement) if not isinstance(node, ast.stmt)]


def _list_methods(node: ast.AST) -> Iterator[str]:
    """Yield the methods that are called on an actor's handle: `method` of `one.method.remote()` and
    of `one.method.options(...).remote()`.
    """
    for called in _list_called(node):
        if isinstance(called, ast.Attribute):
            yield called.attr


def _list_tasks(tree: ast.AST, node: ast.AST) -> Iterator[str]:
    """Yield the tasks that are started: `function` of `function.remote()`, where the source has a
    function of that name; a class of that name would be an actor that is made.
    """
    functions = {one.name for one in ast.walk(tree) if isinstance(one, _Function)}
    for called in _list_called(node):
        if isinstance(called, ast.Name) and called.id in functions:
            yield called.id


def _list_called(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what stands before `.remote()`, and before `.options(...).remote()`."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not _is_attribute(call.func, "remote"):
            continue
        called = call.func.value  # type: ignore[attr-defined]  # an Attribute, as was just asked
        if isinstance(called, ast.Call) and _is_attribute(called.func, "options"):
            called = called.func.value  # type: ignore[attr-defined]
        yield called


def _is_attribute(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name


def _list_origins(around: ast.AST, names: set[str]) -> Iterator[ast.AST]:
    """Yield from what, in a function, variables of these names come: what is assigned to them,
    looped over, or appended to a list.
    """
    for node in ast.walk(around):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and _name_any(targets, names):
            yield from () if node.value is None else (node.value,)
        elif isinstance(node, ast.For | ast.comprehension) and _name_any(targets, names):
            yield node.iter
        elif isinstance(node, ast.Call) and _is_attribute(node.func, "append"):
            to = node.func.value  # type: ignore[attr-defined]
            yield from node.args if _name_any([to], names) else ()


def _name_any(targets: Iterable[ast.expr | None], names: set[str]) -> bool:
    found = (node for one in targets if one is not None for node in ast.walk(one))
    return any(isinstance(node, ast.Name) and node.id in names for node in found)


def _qualify(tree: ast.AST, method: str) -> str:
    classes = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(one, _Function) and one.name == method for one in node.body)
    ]
    return f"{classes[0]}.{method}" if len(classes) == 1 else method
