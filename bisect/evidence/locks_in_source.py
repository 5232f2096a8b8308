"""Which locks the source around a frame takes, and which it stands inside of: `with self._lock:`,
`lock.acquire()`, a function that calls flock().

Python's locks do not tell who has them: threading.Lock is a semaphore (Modules/_threadmodule.c up
to 3.12) or a byte (PyMutex), that of multiprocessing a semaphore in shared memory. A thread that
stands between the line that takes a lock and the one that gives it back most likely has it. What is
one lock is told by the address of its object, where a local variable has that, or by where its name
is defined.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ..base.identity import ProcessId
from ..base.process_facts import FILE_LOCK, CodeLock, Frame, Look, Thread
from ..base.rank_facts import RankFacts
from .source_tree import find_called_name, find_enclosing_nodes, parse_source, read_source

_FUTEX_TIME_LIMIT = 3  # which argument of futex() it is
_LOCKS_A_FILE = frozenset(["flock", "lockf"])
_FILE_LOCK_CLASSES = frozenset(["FileLock", "UnixFileLock", "SoftFileLock", "WeakFileLock"])
_LONGEST = 60  # characters of an expression
_MOST_FRAMES = 40  # of a thread, the innermost
# Where Python takes a lock for `with`, by a function that is written in Python.
_TAKES_FOR_OTHERS = (
    "threading.py",
    "multiprocessing/synchronize.py",
    "multiprocess/synchronize.py",
)
_TAKING = frozenset(["__enter__", "acquire"])
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _LineLocks(NamedTuple):
    """The locks of a line of a source."""

    takes: ast.expr | None  # the one that is taken there
    inside: tuple[ast.expr, ...]  # those that were taken before, and not given back
    # Of a head with several on this line, those before its call: `with lock, open(path)`.
    before_call: tuple[ast.expr, ...]
    way: tuple[ast.AST, ...]  # to the line, outermost first


@lru_cache(maxsize=1 << 10)  # ranks stand in few different lines
def _find_locks(source: str, line: int) -> _LineLocks:
    """Return the locks of `line`; none for what is no Python. Never raises."""
    tree = parse_source(source)
    way = find_enclosing_nodes(tree, line) if tree is not None else []
    first = max((n for n, node in enumerate(way) if isinstance(node, _Function)), default=0)
    inside: list[ast.expr] = []
    for outer, inner in pairwise(way[first:]):
        inside += _locks_of_with(outer, inner, tree) + _locks_before(outer, inner, tree)
    last = way[-1] if way else None
    takes: ast.expr | None = None
    before_call: list[ast.expr] = []
    if isinstance(last, ast.With):  # a line of its head
        heads = [item.context_expr for item in last.items]
        there = [one for one in heads if one.lineno <= line <= (one.end_lineno or one.lineno)]
        before = [one for one in heads if (one.end_lineno or one.lineno) < line]
        inside += [one for one in before if _is_lock(one, tree)]
        takes = there[0] if len(there) == 1 and _is_lock(there[0], None) else None
        if len(there) > 1 and isinstance(there[-1], ast.Call) and not _is_lock(there[-1], tree):
            before_call = [one for one in there[:-1] if _is_lock(one, None)]
            takes = before_call[0] if len(there) == 2 and before_call else None
    else:
        taken = [one for node in _keep_last_statement(way[first:]) if (one := _acquired(node))]
        takes = taken[-1] if taken else None
    given = _word(takes) if takes is not None else ""
    inside = [one for one in inside if _word(one) != given]
    unique = {_word(one): one for one in inside}
    return _LineLocks(takes, tuple(unique.values()), tuple(before_call), tuple(way))


def _keep_last_statement(way: Sequence[ast.AST]) -> Sequence[ast.AST]:
    """Return the nodes of a way from its last statement on."""
    last = max((n for n, node in enumerate(way) if isinstance(node, ast.stmt)), default=0)
    return way[last:]


def _word(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _is_lock(node: ast.expr, tree: ast.AST | None) -> bool:
    """Return True for an expression that may be a lock: a name or an attribute; a call that locks a
    file, as the same source shows.
    """
    if isinstance(node, ast.Call):
        return tree is not None and _call_locks_a_file(node, tree)
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


def _call_locks_a_file(call: ast.Call, tree: ast.AST) -> bool:
    name = find_called_name(call)
    if name in _FILE_LOCK_CLASSES:
        return True
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)
    return any(_locks_files(function) for function in functions)


def _locks_files(function: ast.FunctionDef) -> bool:
    names = {find_called_name(node) for node in ast.walk(function) if isinstance(node, ast.Call)}
    return bool(names & (_LOCKS_A_FILE | _FILE_LOCK_CLASSES))


def _locks_of_with(outer: ast.AST, inner: ast.AST, tree: ast.AST | None) -> list[ast.expr]:
    """Return the locks of a `with` whose body has `inner`; none where both are on one line."""
    if not isinstance(outer, ast.With) or inner not in outer.body:
        return []
    heads = [item.context_expr for item in outer.items]
    if any((one.end_lineno or one.lineno) == getattr(inner, "lineno", 0) for one in heads):
        return []
    return [one for one in heads if _is_lock(one, tree)]


def _locks_before(outer: ast.AST, inner: ast.AST, tree: ast.AST | None) -> list[ast.expr]:
    """Return the locks that statements before `inner` have taken and not given back, and those that
    the end of the `try` around it gives back.
    """
    found: dict[str, ast.expr] = {}
    for name in ("body", "orelse", "finalbody"):
        body = getattr(outer, name, None)
        if isinstance(body, list) and inner in body:
            for statement in body[: body.index(inner)]:
                _follow_statement(statement, found)
    if isinstance(outer, ast.Try) and inner in outer.body:
        for statement in outer.finalbody:
            released = _receiver_of(statement, "release")
            if released is not None:
                found[_word(released)] = released
    return list(found.values())


def _follow_statement(statement: ast.stmt, found: dict[str, ast.expr]) -> None:
    """Note what a statement that is over has taken or given back."""
    taken, released = _receiver_of(statement, "acquire"), _receiver_of(statement, "release")
    if taken is not None:
        found[_word(taken)] = taken
    if released is not None:
        found.pop(_word(released), None)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and find_called_name(call) in _LOCKS_A_FILE and call.args:
        file = ast.unparse(call.args[0])
        for word in [w for w, one in found.items() if _locks_file(one, file)]:
            del found[word]
        if not any("LOCK_UN" in ast.unparse(argument) for argument in call.args):
            found[_word(call)] = call


def _locks_file(one: ast.expr, file: str) -> bool:
    return isinstance(one, ast.Call) and bool(one.args) and ast.unparse(one.args[0]) == file


def _receiver_of(statement: ast.AST, method: str) -> ast.expr | None:
    """Return X of the statement `X.acquire()`, None for any other."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    return call.func.value if call.func.attr == method else None


def _acquired(node: ast.AST) -> ast.expr | None:
    """Return X of a node that is, or is the statement of, a call `X.acquire()`."""
    call = getattr(node, "value", None) if isinstance(node, ast.stmt) else node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    return call.func.value if call.func.attr == "acquire" else None


# ---- which lock it is ----------------------------------------------------------------------------


def _make_lock(frame: Frame, node: ast.expr, way: Sequence[ast.AST]) -> CodeLock:
    """Return the lock that an expression of a frame's source is."""
    return CodeLock(_word(node), _identify(frame, node, way))


def _identify(frame: Frame, node: ast.expr, way: Sequence[ast.AST]) -> str:
    """Return what is equal for expressions that are one lock, "" where that is not known."""
    if isinstance(node, ast.Call):
        return FILE_LOCK
    if isinstance(node, ast.Attribute):
        return _identify_attribute(frame, node, way)
    if not isinstance(node, ast.Name):
        return ""
    here = dict(frame.objects).get(node.id)
    return here or _identify_name(node.id, os.path.basename(frame.file), way)


def _identify_attribute(frame: Frame, node: ast.Attribute, way: Sequence[ast.AST]) -> str:
    if not isinstance(node.value, ast.Name):
        return ""
    owner = node.value.id
    if (address := dict(frame.objects).get(owner)) is not None:
        return f"{address}.{node.attr}"
    module = _imported_modules(way[0]).get(owner) if way else None
    if module:
        return f"{module}.py:{node.attr}"
    defined = _identify_name(owner, os.path.basename(frame.file), way)
    return f"{defined}.{node.attr}" if defined else ""


def _identify_name(name: str, file: str, way: Sequence[ast.AST]) -> str:
    """Return where a name is defined that is no local variable: in an enclosing function, or in a
    module, which may be another one.
    """
    functions = [node for node in way if isinstance(node, _Function)]
    if functions and name in _names_set_in(functions[-1]):
        return ""  # a variable or a parameter, and nothing tells of which object
    for function in reversed(functions[:-1]):
        if name in _names_set_in(function):
            return f"{file}:{getattr(function, 'name', 'lambda')}.{name}"
    for node in getattr(way[0], "body", ()) if way else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return f"{node.module.rpartition('.')[2]}.py:{alias.name}"
    return f"{file}:{name}"


@lru_cache(maxsize=256)
def _names_set_in(function: _Function) -> frozenset[str]:
    """Return the parameters and variables of a function, not those of functions in it."""
    arguments = function.args
    names = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    names |= {one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None}
    shared: set[str] = set()
    for node in _walk_inside(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            shared.update(node.names)
    return frozenset(names - shared)


def _walk_inside(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, _Function | ast.ClassDef):
            yield from _walk_inside(node)


@lru_cache(maxsize=64)
def _imported_modules(tree: ast.AST) -> dict[str, str]:
    """Return the last part of each module that a source imports, by its name there."""
    found: dict[str, str] = {}
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = alias.name.rpartition(".")[2]
        elif isinstance(node, ast.ImportFrom) and not node.module:
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
    return found


# ---- of a look -----------------------------------------------------------------------------------


def add_code_locks(look: Look) -> Look:
    """Return a look with the lock that each thread waits for in a futex without a time limit, and
    those inside of which the frames of all threads stand. May block with the disk of the sources.

    No source is read where no thread waits so: that is how nearly all looks are.
    """
    waiting = {task.tid for task in look.kernel if _waits_for_ever(task.syscall)}
    frames = {t.os_id or 0: _find_taking_frame(t) for t in look.threads if t.os_id in waiting}
    takes = {
        frame: lock
        for frame in frames.values()
        if frame is not None and (lock := _taken_in(frame)) is not None
    }
    if not takes:
        return look
    words = {one.name.rpartition(".")[2] for one in takes.values()}
    threads = (_add_to_thread(t, frames.get(t.os_id or 0), words) for t in look.threads)
    return replace(look, threads=tuple(threads))


def add_locks_of_others(ranks: Sequence[RankFacts]) -> list[RankFacts]:
    """Return ranks that have been through `add_code_locks`, each with the locks inside of which its
    threads stand, where a rank or its child waits for a semaphore of this name that both share. May
    block with the disk of the sources.
    """
    wanted: dict[ProcessId, set[str]] = {}
    for facts in ranks:
        for look in (looks[-1] for looks in (facts.looks, *facts.children) if looks):
            for lock, pids in _list_wanted(look):
                for pid in pids:
                    words = wanted.setdefault(ProcessId(facts.host, pid), set())
                    words.add(lock.name.rpartition(".")[2])
    return [_add_wanted(facts, wanted) for facts in ranks] if wanted else list(ranks)


def _list_wanted(look: Look) -> Iterator[tuple[CodeLock, tuple[int, ...]]]:
    """Return the locks of processes for which threads wait, and who shares each."""
    calls = {task.tid: task.syscall for task in look.kernel}
    for thread in look.threads:
        call = calls.get(thread.os_id or 0)
        futex = call.futex if call is not None else None
        if futex is not None and futex.is_shared_semaphore and futex.sharers:
            yield from ((f.takes, futex.sharers) for f in thread.frames if f.takes is not None)


def _add_wanted(facts: RankFacts, wanted: Mapping[ProcessId, Iterable[str]]) -> RankFacts:
    words = wanted.get(ProcessId(facts.host, facts.pid)) if facts.pid is not None else None
    known = (f.takes or f.inside for one in facts.looks for t in one.threads for f in t.frames)
    if not words or any(known):
        return facts
    looks = (
        replace(look, threads=tuple(_add_to_thread(one, None, words) for one in look.threads))
        for look in facts.looks
    )
    return replace(facts, looks=tuple(looks))


def _waits_for_ever(call: object) -> bool:
    args = getattr(call, "args", ())
    futex = getattr(call, "name", "") == "futex"
    return futex and len(args) > _FUTEX_TIME_LIMIT and args[_FUTEX_TIME_LIMIT] == 0


def _find_taking_frame(thread: Thread) -> Frame | None:
    """Return the innermost frame of Python's that is not part of how `with` takes a lock."""
    for frame in thread.frames:
        own = frame.name.rpartition(".")[2]
        if frame.native or (frame.file.endswith(_TAKES_FOR_OTHERS) and own in _TAKING):
            continue
        return frame
    return None


def _taken_in(frame: Frame) -> CodeLock | None:
    source = read_source(frame.file)
    found = _find_locks(source, frame.line) if source else None
    if found is None or found.takes is None:
        return None
    return _make_lock(frame, found.takes, found.way)


def _add_to_thread(thread: Thread, taking: Frame | None, words: Iterable[str]) -> Thread:
    frames: list[Frame] = []
    for number, frame in enumerate(thread.frames):
        if frame.native or number >= _MOST_FRAMES or frame.file.startswith("<"):
            frames.append(frame)
            continue
        source = read_source(frame.file)
        # Parsing costs: only of a source that names such a lock, or locks files.
        if not any(word in source for word in (*words, "flock", "FileLock", "lockf")):
            frames.append(frame)
            continue
        found = _find_locks(source, frame.line)
        has = found.inside if frame is taking else (*found.inside, *found.before_call)
        inside = tuple(_make_lock(frame, one, found.way) for one in has)
        takes = _taken_in(frame) if frame is taking else None
        frames.append(replace(frame, takes=takes, inside=inside) if takes or inside else frame)
    return replace(thread, frames=tuple(frames))
