"""Whether a program that sleeps in a loop does so until its children have ended, and for nothing
else: then it starts no more of them while they live. Pure.

The loop is read from the source. Its condition, and whatever leaves it, must be about the ends of
children alone (poll(), is_alive(), exitcode, waitpid with WNOHANG), and nothing in it may start
anything. Where anything else is called or asked, the answer is no.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from .source_tree import find_called_name, find_enclosing_nodes, parse_source

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.While, ast.For, ast.AsyncFor)
# Of modules that start processes: what else has a poll() is not meant (a message queue's client).
_STARTS_PROCESSES = re.compile(r"\b(?:subprocess|multiprocessing|fork|posix_spawn)\b")
_COUNTS = frozenset(["any", "all", "len", "sum", "list", "tuple", "set", "bool", "sorted"])
_VIEWS = frozenset(["values", "items", "keys", "enumerate", "zip", "reversed", "range", "len"])
# What a loop may do besides: it says something, pauses, or ends its children, or itself.
_SAYS = ("print", "flush", "debug", "info", "warning", "error")
_HARMLESS = frozenset([*_SAYS, "sleep", "kill", "terminate", "send_signal", "killpg", "exit"])


def waits_for_ends(source: str, line: int) -> bool:
    """Return whether the innermost loop around `line`, where a program sleeps, is left only when a
    child has ended, and starts nothing; False for what is no Python. Never raises.
    """
    tree = parse_source(source) if _STARTS_PROCESSES.search(source) else None
    around = find_enclosing_nodes(tree, line) if tree is not None else []
    inside = [node for node in around if isinstance(node, _LOOPS + _SCOPES)]
    loop = inside[-1] if inside else None
    if not isinstance(loop, ast.While) or loop.orelse:
        return False
    checked = _LoopBody()
    endless = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    if not endless and not checked.is_about_ends(loop.test):
        return False
    if not all(map(checked.allows, loop.body)):
        return False
    # What is looked at only after the sleep was perhaps never looked at.
    return any(asked <= line for asked in checked.asked)


class _LoopBody:
    """What a loop does, statement by statement."""

    def __init__(self) -> None:
        self.known: set[str] = set()  # variables whose value changes only when a child ends
        self.statuses: set[str] = set()  # those that are statuses: of use where compared
        self.asked: list[int] = []  # lines where an end is asked for

    def allows(self, statement: ast.stmt) -> bool:
        """Return whether a statement starts nothing, and leaves the loop for an end alone."""
        match statement:
            case ast.Pass() | ast.Continue():
                return True
            case ast.Expr(ast.Constant()):
                return True
            case ast.Expr(ast.Call() as call):
                return _is_harmless(call)
            case ast.Assign(targets=[ast.Name(name)], value=value):
                if self._asks_for_status(value) or self._lists_statuses(value):
                    self.statuses.add(name)
                    return True
                self.known |= {name} if self.is_about_ends(value) else set()
                return name in self.known
            case ast.If():
                return self.is_about_ends(statement.test) and all(
                    _does_little(one) for one in (*statement.body, *statement.orelse)
                )
            case ast.For(target=ast.Name(), orelse=[]):
                return _names_children(statement.iter) and all(map(self.allows, statement.body))
        return False

    def is_about_ends(self, asked: ast.expr) -> bool:
        """Return whether the value of an expression changes only when a child ends."""
        match asked:
            case ast.Constant():
                return True
            case ast.Name(name):
                return name in self.known
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                equal = isinstance(operator, ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
                number = _is_number_literal(right) and not isinstance(left, ast.Call)
                if equal and (_is_none(right) or number) and self._asks_for_status(left):
                    return True
                if isinstance(operator, ast.In | ast.NotIn) and _is_none(left):
                    return self._lists_statuses(right)
                return self.is_about_ends(left) and self.is_about_ends(right)
            case ast.UnaryOp(operand=operand):
                return self.is_about_ends(operand)
            case ast.BoolOp(values=several) | ast.Tuple(elts=several) | ast.List(elts=several):
                return all(map(self.is_about_ends, several))
            case ast.Call():
                return self._is_a_call_about_ends(asked)
            case ast.Subscript(value=value, slice=ast.Constant()):
                return self.is_about_ends(value)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._lists_ends(asked)
        return False

    def _is_a_call_about_ends(self, call: ast.Call) -> bool:
        name = find_called_name(call)
        if name == "waitpid" and any("WNOHANG" in ast.unparse(one) for one in call.args):
            self.asked.append(call.lineno)
            return True
        if name == "is_alive" and not call.args and isinstance(call.func, ast.Attribute):
            self.asked.append(call.lineno)
            return True
        counts = isinstance(call.func, ast.Name) and name in _COUNTS and not call.keywords
        return counts and all(map(self.is_about_ends, call.args))

    def _lists_ends(self, several: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> bool:
        """Return whether a comprehension is one of children, or of what is known of their ends."""
        if len(several.generators) != 1:
            return False
        (over,) = several.generators
        targets = {node.id for node in ast.walk(over.target) if isinstance(node, ast.Name)}
        if not _names_children(over.iter):
            return False
        is_known = isinstance(over.iter, ast.Name) and over.iter.id in self.statuses
        before = set(self.statuses)
        self.statuses = before | targets if is_known else before - targets
        counted = isinstance(several.elt, ast.Name) and several.elt.id in targets and over.ifs
        good = all(map(self.is_about_ends, over.ifs)) and (
            bool(counted) or self.is_about_ends(several.elt)
        )
        self.statuses = before
        return good

    def _lists_statuses(self, asked: ast.expr) -> bool:
        """Return whether an expression is the status of a child, None while it lives, or several
        in a list that is compared later.
        """
        match asked:
            case ast.ListComp(elt=one, generators=[over]):
                return not over.ifs and _names_children(over.iter) and self._asks_for_status(one)
            case ast.Name(name):
                return name in self.statuses
        return False

    def _asks_for_status(self, asked: ast.expr) -> bool:
        match asked:
            case ast.Call(func=ast.Attribute(attr="poll"), args=[], keywords=[]):
                self.asked.append(asked.lineno)
                return True
            case ast.Attribute(attr="exitcode" | "returncode"):
                self.asked.append(asked.lineno)
                return True
            case ast.Name(name):
                return name in self.statuses
        return False


def _is_number_literal(one: ast.expr) -> bool:
    return isinstance(one, ast.Constant) and type(one.value) is int


def _is_none(one: ast.expr) -> bool:
    return isinstance(one, ast.Constant) and one.value is None


def _names_children(over: ast.expr) -> bool:
    """Return whether what is iterated over is there already: no call makes it."""
    calls = [node for node in ast.walk(over) if isinstance(node, ast.Call)]
    return all(find_called_name(call) in _VIEWS for call in calls)


def _is_harmless(call: ast.Call) -> bool:
    return find_called_name(call) in _HARMLESS and not any(
        isinstance(node, ast.Call) for one in _arguments(call) for node in ast.walk(one)
    )


def _arguments(call: ast.Call) -> Iterable[ast.expr]:
    return (*call.args, *(keyword.value for keyword in call.keywords))


def _does_little(statement: ast.stmt) -> bool:
    """Return whether a statement that follows on an end only leaves the loop, or ends others."""
    match statement:
        case ast.Pass() | ast.Continue() | ast.Break() | ast.Return() | ast.Raise():
            return True
        case ast.Expr(ast.Call() as call):
            return _is_harmless(call)
        case ast.For(target=ast.Name(), orelse=[]):
            return _names_children(statement.iter) and all(map(_does_little, statement.body))
    return False
