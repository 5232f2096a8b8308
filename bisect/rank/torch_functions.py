"""The functions of torch.distributed that are logged, and how one is put in the place of another.

Nearly all are closures of torch's own loggers (torch/distributed/c10d_logger.py) around the
function proper. It is the innermost that is replaced, in its closure's cell: so every module has
the new one, however and whenever it came by the name, and names, identity, pickles, warnings and
torch.compile's table of functions stay as they are. The few without such a closure are replaced by
name, in torch.distributed alone. isend and irecv are left as they are: torch compares them by
identity (P2POp), and a module that took them before would be told that they are others.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from .tracebacks import without_our_frame

C10D = "torch.distributed.distributed_c10d"  # the module that defines them
COLLECTIVES = (
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object"),
    *("all_gather_single", "_all_gather_base", "all_reduce", "all_reduce_coalesced"),
    *("all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "broadcast"),
    *("broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter"),
    *("reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list"),
    *("new_group", "split_group", "shrink_group"),
)
TO_ONE_PEER = ("send", "recv", "send_object_list", "recv_object_list")
OF_NO_GROUP = ("init_process_group", "destroy_process_group")

Function = Callable[..., Any]
# Returns what takes the place of a function; the number says how many frames up its caller is.
Maker = Callable[[Function, int], Function]
Undo = Callable[[], None]


def replace(c10d: ModuleType, name: str, made: Maker) -> Undo:
    """Put made(function, depth) in the place of a function of torch.distributed; return what puts
    the function back, unless another one has taken that place meanwhile.
    """
    function = getattr(c10d, name)
    cells = list(_cells(function))
    if cells:
        cell, inner = cells[-1], cells[-1].cell_contents
        cell.cell_contents = replacement = made(inner, 1 + len(cells))

        def undo() -> None:
            if cell.cell_contents is replacement:
                cell.cell_contents = inner

        return undo
    modules = [c10d, sys.modules.get("torch.distributed")]
    places = [m for m in modules if m is not None and getattr(m, name, None) is function]
    replacement = functools.wraps(function)(made(function, 1))
    undone = [_set(place, name, replacement, function) for place in places]

    def undo_all() -> None:
        for undo in undone:
            undo()

    return undo_all


def replace_attribute(owner: Any, name: str, made: Maker) -> Undo:
    """Put made(function, depth) in the place of a method of a class, or a function of a module;
    return what puts it back, as above.
    """
    function = vars(owner).get(name)
    replacement = functools.wraps(getattr(owner, name))(made(getattr(owner, name), 1))
    return _set(owner, name, replacement, function)


def _set(owner: Any, name: str, replacement: Any, function: Any) -> Undo:
    setattr(owner, name, replacement)

    def undo() -> None:
        if vars(owner).get(name) is not replacement:
            return
        if function is None:  # it was inherited
            delattr(owner, name)
        else:
            setattr(owner, name, function)

    return undo


def unwrapped(function: Any) -> Any:
    """Return the function proper, below all that functools.wraps put around it."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def parameters(function: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters that may be given by position."""
    code = unwrapped(function).__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names


def inner_functions(c10d: ModuleType) -> Iterator[Any]:
    """Yield the functions that others consist of: what these call is a part of their caller."""
    for name, value in vars(c10d).items():
        makes_groups = name.startswith("_") and "group" in name
        if (makes_groups or name in COLLECTIVES or name in OF_NO_GROUP or name in TO_ONE_PEER) and (
            hasattr(unwrapped(value), "__code__")
        ):
            yield unwrapped(value)


def around(
    function: Function, before: Function | None = None, after: Callable[[], None] | None = None
) -> Function:
    """Return `function` with something before it, and after it if it raises nothing."""

    def with_both(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            without_our_frame(error)
            raise
        if after is not None:
            after()
        return result

    return with_both


# Closures around a function, by the name of their file: the variable that holds the function.
_CLOSURES = {"c10d_logger.py": "func", "typing_extensions.py": "arg", "warnings.py": "arg"}


def _cells(function: Any) -> Iterator[Any]:
    """Yield the cells in which torch's loggers, and `deprecated`, hold what they are around."""
    while True:
        code = getattr(function, "__code__", None)
        if code is None:
            return
        name = _CLOSURES.get(code.co_filename.rpartition("/")[2])
        if name is None or name not in code.co_freevars:
            return
        cell = function.__closure__[code.co_freevars.index(name)]
        if not callable(cell.cell_contents):
            return
        yield cell
        function = cell.cell_contents
