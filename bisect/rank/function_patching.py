"""Replaces a function's body by a call, without a difference to the outside, and puts it back.

The function stays the same object under every name that refers to it (`from torch import load`,
an argument's default, a pickle, a table of identities), before, while and after. What is
replaced is its code (`__code__`), by a call of the stand-in with the parameters of the
original. Another object in its place would have to pickle as the
original, and could not: pickle, cloudpickle and dill ask the module whether it holds this very
object.

The new code names no source file: warnings and logging do not count its frame (`stacklevel`),
torch.compile leaves it out, and `inspect.getsource` finds the original's text by the module.

Below a compiled function that is left for a moment (a graph break) torch would compile whatever
Python runs, ours included: a second for the first message of a step. `exclude_from_compile`
keeps it from that.

Nearly all functions of torch.distributed are closures of torch's own loggers
(torch/distributed/c10d_logger.py) around the function proper. It is the innermost that is
replaced, in its closure's cell: so every module has the new one, however and whenever it came by
the name, and names, identity, pickles, warnings and torch.compile's table of functions stay as
they are. A function without such a closure gets other code. isend and irecv are left as they
are: torch compares them by identity (P2POp).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .tracebacks import without_our_frame

Function = Callable[..., Any]
Undo = Callable[[], None]
# What warnings and logging take for the machinery of imports, and do not count: the `stacklevel` of
# a warning leads to the script's own line as without us (warnings._is_internal_frame).
HIDDEN_FILE = "<frozen importlib._bootstrap> hangbisect"

# What is called, and returns at once, has another code: these make a generator, a coroutine.
_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_HAS_QUALNAMES = hasattr(CodeType, "co_qualname")  # Python 3.11
_CALLED = "what stands in"  # a constant in the code that is compiled, and replaced by an object
_CODE = """
def outer({cells}):
    def function({parameters}):
        if False:  # named, so that it has the same cells; never read: one may be empty
            {cells}
        try:
            return {called!r}.__call__({arguments})
        except BaseException as _hangbisect:
            if _hangbisect.__traceback__ is not None:  # our own frame, as in tracebacks.py
                _hangbisect.__traceback__ = _hangbisect.__traceback__.tb_next
            raise
"""


def exchange_code(function: Any, made: Callable[[Function], Function]) -> Undo | None:
    """Let `function` call made(original) from now on, where the original is a function that does
    what it did; return what gives it its own code back. None where that cannot be: it is no plain
    Python function, or it makes a generator or a coroutine.

    Defaults are filled in before: what stands in gets all arguments, those of which a parameter
    allows it by position.
    """
    if not isinstance(function, FunctionType) or function.__code__.co_flags & _RUNS_LATER:
        return None
    code = function.__code__
    stand_in = _StandIn(_copy_function(function))
    try:
        new = _make_calling_code(code, stand_in)
    except (SyntaxError, ValueError, AssertionError):  # parameters that no source can spell
        return None
    stand_in.__call__ = made(stand_in.original)
    function.__code__ = new

    def undo() -> None:
        stand_in.__call__ = stand_in.original  # for those who copied the function meanwhile
        stand_in.is_over = True
        while (top := _find_stand_in(function.__code__)) is not None and top.is_over:
            function.__code__ = top.original.__code__

    return undo


def hide_frames(function: Function) -> Function:
    """Return `function`, whose frames are not counted from now on, as above."""
    made: Any = function
    made.__code__ = _with_hidden_file(made.__code__)
    return function


@functools.lru_cache(maxsize=8)
def _with_hidden_file(code: CodeType) -> CodeType:
    return code.replace(co_filename=HIDDEN_FILE)


class _StandIn:
    """What the new code calls. A copy that another process gets (a function that is pickled by
    value, with its code) calls the original: there is no watch there.
    """

    __slots__ = ("__call__", "is_over", "original")
    __call__: Function

    def __init__(self, original: FunctionType) -> None:
        self.original = original
        self.is_over = False

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (self.original,)


def _find_stand_in(code: CodeType) -> _StandIn | None:
    return next((one for one in code.co_consts if isinstance(one, _StandIn)), None)


def _copy_function(function: FunctionType) -> FunctionType:
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    made.__dict__.update(function.__dict__)
    return made


def _make_calling_code(code: CodeType, stand_in: object) -> CodeType:
    """Return code with the parameters and cells of `code` that calls `stand_in`."""
    parameters, arguments = _list_parameters(code)
    text = _CODE.format(
        cells=", ".join(code.co_freevars) or "_hangbisect",
        parameters=", ".join(parameters),
        called=_CALLED,
        arguments=", ".join(arguments),
    )
    outer = _first_code(compile(text, HIDDEN_FILE, "exec", dont_inherit=True))
    made = _first_code(outer)
    assert made.co_freevars == code.co_freevars, made.co_freevars
    named: dict[str, Any] = {"co_qualname": code.co_qualname} if _HAS_QUALNAMES else {}
    return made.replace(
        co_name=code.co_name,
        # A name for each file: `linecache` keeps lines by it, which it gets from the module.
        co_filename=f"{HIDDEN_FILE} {code.co_filename}",
        co_firstlineno=code.co_firstlineno,
        co_consts=tuple(stand_in if one == _CALLED else one for one in made.co_consts),
        **named,
    )


def _list_parameters(code: CodeType) -> tuple[list[str], list[str]]:
    """Return the parameters of `code`, without defaults, and the arguments that pass them on."""
    count, keywords = code.co_argcount, code.co_kwonlyargcount
    names = iter(code.co_varnames)
    by_position = [next(names) for _ in range(count)]
    by_keyword = [next(names) for _ in range(keywords)]
    rest = f"*{next(names)}" if code.co_flags & inspect.CO_VARARGS else ""
    others = f"**{next(names)}" if code.co_flags & inspect.CO_VARKEYWORDS else ""
    parameters = [*by_position]
    if code.co_posonlyargcount:
        parameters.insert(code.co_posonlyargcount, "/")
    parameters += [rest or "*"] if rest or by_keyword else []
    parameters += [*by_keyword, *_some(others)]
    arguments = [*by_position, *_some(rest), *(f"{n}={n}" for n in by_keyword), *_some(others)]
    return parameters, arguments


def _some(word: str) -> Iterator[str]:
    if word:
        yield word


def _first_code(code: CodeType) -> CodeType:
    return next(one for one in code.co_consts if isinstance(one, CodeType))


def exclude_from_compile(function: Function) -> Function:
    """Return `function`, called as torch._dynamo.disable would have it called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        # `torch._dynamo` is only imported by who compiles.
        frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
        if frames is None or "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        before = frames.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            if before is not None:
                frames.set_eval_frame(before)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler does
    return hide_frames(call)


C10D = "torch.distributed.distributed_c10d"  # the module that defines them
COLLECTIVES = (
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object"),
    *("all_gather_single", "_all_gather_base", "all_reduce", "all_reduce_coalesced"),
    *("all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "broadcast"),
    *("broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter"),
    *("reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list"),
    *("new_group", "split_group", "shrink_group"),
)
POINT_TO_POINT = ("send", "recv", "send_object_list", "recv_object_list")
TO_PEER_HANDED_OUT = ("isend", "irecv")  # return a handle at once: no steps

GROUP_LIFETIME = ("init_process_group", "destroy_process_group")
_LOGGED = frozenset([*COLLECTIVES, *POINT_TO_POINT, *TO_PEER_HANDED_OUT, *GROUP_LIFETIME])

# Returns what takes the place of a function; the number says how many frames up its caller is.
Maker = Callable[[Function, int], Function]


def replace_torch_function(c10d: ModuleType, name: str, made: Maker) -> Undo:
    """Put made(function, depth) in the place of a function of torch.distributed; return what puts
    the function back, unless another one has taken that place meanwhile.
    """
    function = getattr(c10d, name)
    cells = list(_find_cells(function))
    if cells:
        cell, inner = cells[-1], cells[-1].cell_contents
        cell.cell_contents = replacement = made(inner, 1 + len(cells))

        def undo() -> None:
            if cell.cell_contents is replacement:
                cell.cell_contents = inner

        return undo
    return replace_code(function, made)


def replace_code(function: Any, made: Maker) -> Undo:
    """Let a function, or a method of a class, call made(function, depth); return what undoes it."""
    return exchange_code(function, lambda original: made(original, 2)) or _undo_nothing


def _undo_nothing() -> None:
    """Nothing was replaced: there is nothing to put back."""


def unwrap_function(function: Any) -> Any:
    """Return the function proper, below all that functools.wraps put around it."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def list_positional_parameters(function: Any) -> tuple[str, ...]:
    """Return the names of a function's parameters that may be given by position."""
    code = unwrap_function(function).__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names


def find_inner_functions(c10d: ModuleType) -> Iterator[Any]:
    """Yield the functions that others consist of: what these call is a part of their caller."""
    for name, value in vars(c10d).items():
        makes_groups = name.startswith("_") and "group" in name
        if (makes_groups or name in _LOGGED) and hasattr(unwrap_function(value), "__code__"):
            yield unwrap_function(value)


def add_before_and_after(
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


def _find_cells(function: Any) -> Iterator[Any]:
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


# Called with the arguments of a call; returns what is to be called when it is over, with what it
# raised, or None where the call is no step. Neither may raise anything of ours.
Begin = Callable[[tuple[Any, ...], dict[str, Any]], "Callable[[BaseException | None], None] | None"]


def patch_with_step(module: ModuleType, attribute: str, begin: Begin) -> Undo | None:
    """Put begin() and what it returns around a call that `module` defines; return its undo."""
    return patch_attribute(module, attribute, functools.partial(wrap_in_step, begin=begin))


def patch_attribute(
    module: ModuleType, attribute: str, made: Callable[[Function], Function]
) -> Undo | None:
    """Have the function, or the method of a class, that `module` defines as `attribute` (dotted) do
    what made(function) does; return what undoes it. None where this version of the library has no
    such function.
    """
    if module.__name__ == C10D:
        if not hasattr(module, attribute):
            return None
        return replace_torch_function(module, attribute, lambda function, depth: made(function))
    return exchange_code(find_function(module, attribute), made)


def find_function(module: ModuleType, attribute: str) -> Any:
    """Return the function, or the method of a class, that `module` defines as `attribute` (dotted),
    without what makes it static or of the class; None where it has none.
    """
    *owners, name = attribute.split(".")
    owner: Any = module
    for one in owners:
        owner = getattr(owner, one, None)
    found = vars(owner).get(name) if owner is not None else None
    return getattr(found, "__func__", found)


def wrap_in_step(function: Function, begin: Begin) -> Function:
    """Return `function` with begin() before it and what that returned after it."""
    begun, over = exclude_from_compile(begin), exclude_from_compile(_end_step)

    def step(*args: Any, **kwargs: Any) -> Any:
        end = begun(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if end is not None:
                over(end, error)
            without_our_frame(error)
            raise
        if end is not None:
            over(end, None)
        return result

    return make_look_alike(function, step)


def _end_step(end: Callable[[BaseException | None], None], error: BaseException | None) -> None:
    end(error)


def make_look_alike(function: Function, stand_in: Function) -> Function:
    """Return `stand_in` with the looks of `function`, whose place it takes."""
    wrapper: Any = functools.wraps(function)(hide_frames(stand_in))
    wrapper._torchdynamo_disable = True  # as torch.compiler.disable does: nothing of us is compiled
    return wrapper  # type: ignore[no-any-return]  # a function, whatever else
