"""Put a step around a known call, so that nobody notices, and take it away again.

Whoever looks finds the function that was there: its name, signature, documentation and pickle
(functools.wraps). Classes stay the classes they are: what is replaced is the method in them.
Functions of torch.distributed are replaced in torch's own closures (torch_functions.py).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from ..torch_functions import C10D, Undo
from ..torch_functions import replace as replace_torchs
from ..tracebacks import without_our_frame

Function = Callable[..., Any]
# Called with the arguments of a call; returns what is to be called when it is over, with what it
# raised, or None where the call is no step. Neither may raise anything.
Begin = Callable[[tuple[Any, ...], dict[str, Any]], "Callable[[BaseException | None], None] | None"]
# What warnings and logging take for the machinery of imports, and do not count: the `stacklevel` of
# a warning leads to the script's own line as without us (warnings._is_internal_frame).
HIDDEN = "<frozen importlib._bootstrap> hangbisect"


def put_around(module: ModuleType, attribute: str, begin: Begin) -> Undo | None:
    """Put begin() and what it returns around a call that `module` defines; return as put() does."""
    return put(module, attribute, functools.partial(around, begin=begin))


def put(module: ModuleType, attribute: str, made: Callable[[Function], Function]) -> Undo | None:
    """Put made(function) in the place of the function, or the method of a class, that `module`
    defines as `attribute` (dotted); return what puts it back. None where this version of the
    library has no such function.
    """
    if module.__name__ == C10D:
        if not hasattr(module, attribute):
            return None
        return replace_torchs(module, attribute, lambda function, depth: made(function))
    *owners, name = attribute.split(".")
    owner: Any = module
    for one in owners:
        owner = getattr(owner, one, None)
    found = vars(owner).get(name) if owner is not None else None
    if found is None:
        return None
    replacement = _like(found, made)
    return None if replacement is None else _set(owner, name, found, replacement)


def _like(found: Any, made: Callable[[Function], Function]) -> Any:
    """Return what stands in for a function, class method or static method; None for others."""
    if isinstance(found, classmethod | staticmethod):
        return type(found)(made(found.__func__))
    return made(found) if callable(found) and not isinstance(found, type) else None


def _set(owner: Any, name: str, found: Any, replacement: Any) -> Undo:
    places = [owner]
    if isinstance(owner, ModuleType):  # packages offer what their modules define
        package = sys.modules.get(owner.__name__.rpartition(".")[0])
        if package is not None and vars(package).get(name) is found:
            places.append(package)
    for place in places:
        setattr(place, name, replacement)

    def undo() -> None:
        for place in [*places, *_offering(owner, name, replacement)]:
            if vars(place).get(name) is replacement:
                setattr(place, name, found)

    return undo


def _offering(owner: Any, name: str, replacement: Any) -> list[ModuleType]:
    """Return the packages above a module that have taken the replacement from it meanwhile."""
    above: list[ModuleType] = []
    parent = owner.__name__ if isinstance(owner, ModuleType) else ""
    while parent := parent.rpartition(".")[0]:
        package = sys.modules.get(parent)
        if isinstance(package, ModuleType) and vars(package).get(name) is replacement:
            above.append(package)
    return above


def around(function: Function, begin: Begin) -> Function:
    """Return `function` with begin() before it and what that returned after it."""

    def step(*args: Any, **kwargs: Any) -> Any:
        end = begin(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if end is not None:
                end(error)
            without_our_frame(error)
            raise
        if end is not None:
            end(None)
        return result

    return in_place_of(function, step)


def in_place_of(function: Function, stand_in: Function) -> Function:
    """Return `stand_in` with the looks of `function`, whose place it takes."""
    wrapper: Any = functools.wraps(function)(_hidden(stand_in))
    wrapper._torchdynamo_disable = True  # as torch.compiler.disable does: nothing of us is compiled
    return wrapper  # type: ignore[no-any-return]  # a function, whatever else


def _hidden(function: FunctionType | Function) -> Function:
    made: Any = function
    with contextlib.suppress(Exception):
        made.__code__ = _code(made.__code__)
    return made  # type: ignore[no-any-return]  # the same function


@functools.lru_cache(maxsize=4)
def _code(code: Any) -> Any:
    return code.replace(co_filename=HIDDEN)
