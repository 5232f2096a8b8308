"""Ports that a loop of the job's own tries to bind again and again, until they are free: as its
source shows, and the whole numbers among its local variables.

A bind() that fails takes no time, and leaves nothing: between two tries a process only sleeps.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from ..base.process_facts import Frame, Thread
from .source_tree import find_called_name, find_enclosing_nodes, parse_source, read_source

_MOST_INNER = 4  # frames of which one may have the loop
_BINDS = frozenset(["bind", "create_server"])
_WORDS = tuple(f"{name}(" for name in _BINDS)  # without one of these a source is not worth parsing
_PORT = "port"  # in the name of a variable
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def names_a_port(threads: Iterable[Thread]) -> bool:
    """Return whether a variable of one of these threads may be such a port: nothing is read."""
    return any(True for thread in threads for _ in _list_told(thread))


def list_tried_ports(threads: Iterable[Thread]) -> frozenset[int]:
    """Return the ports that loops around the lines of these threads try to bind. May block with the
    disk of the sources.
    """
    return frozenset(
        port
        for thread in threads
        for frame, name, port in _list_told(thread)
        if _tries_to_bind(frame, name)
    )


def _list_told(thread: Thread) -> Iterator[tuple[Frame, str, int]]:
    python = [frame for frame in thread.frames if not frame.native][:_MOST_INNER]
    for frame in python:
        for name, value in frame.numbers:
            if _PORT in name.lower():
                yield frame, name, value


def _tries_to_bind(frame: Frame, port: str) -> bool:
    """Return whether the innermost loop around a frame's line binds a socket to what a variable
    says, itself or by a function of the same source that it calls. One that goes through several
    ports waits for none of them.
    """
    source = read_source(frame.file)
    tree = parse_source(source) if any(word in source for word in _WORDS) else None
    if tree is None:
        return False
    way = find_enclosing_nodes(tree, frame.line)
    inside = max((n for n, one in enumerate(way) if isinstance(one, _Function)), default=0)
    loops = [one for one in way[inside:] if isinstance(one, ast.While | ast.For)]
    loop = loops[-1] if loops else None
    if loop is None or (isinstance(loop, ast.For) and _names(loop.target, {port})):
        return False
    meant = {port, *_list_made_of(way[inside], port)}
    given = {find_called_name(one) for one in _list_calls(loop) if _is_given(one, meant)}
    functions = (one for one in ast.walk(tree) if isinstance(one, _Function) and one.name in given)
    return bool(_BINDS & given) or any(_BINDS & _list_called(one) for one in functions)


def _list_made_of(function: ast.AST, port: str) -> Iterator[str]:
    """Yield the variables that a function makes of another one: `address = (host, port)`."""
    for one in ast.walk(function):
        if isinstance(one, ast.Assign) and _names(one.value, {port}):
            yield from (target.id for target in one.targets if isinstance(target, ast.Name))


def _is_given(call: ast.Call, names: Collection[str]) -> bool:
    """Return whether a call is given one of these variables: but by keyword, where a method is
    called that binds, for so do loggers.
    """
    by_name = [] if find_called_name(call) in _BINDS else [one.value for one in call.keywords]
    return any(_names(one, names) for one in (*call.args, *by_name))


def _names(node: ast.AST, names: Collection[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node))


def _list_calls(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def _list_called(node: ast.AST) -> frozenset[str]:
    return frozenset(map(find_called_name, _list_calls(node)))
