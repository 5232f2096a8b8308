"""What the user names as steps and captures: functions (`--step MODULE:FUNCTION`), classes whose
objects listen to the switch of `hangbisect capture` (`--capture MODULE:CLASS`), and blocks
(`with hangbisect.step("build index"):`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType, TracebackType
from typing import Any

from ...base.error_guard import ignore_our_errors
from ...base.errors import UsageError, nearest
from ..function_patching import Undo, patch_with_step
from .known_calls import KnownCall


def parse_steps(text: str) -> list[KnownCall]:
    """Return a row for each of "my.module:function,..."; what is no such word is left out."""
    rows = []
    for word in text.split(","):
        module, _, function = word.strip().partition(":")
        if module and function:
            title = f"{function} done"
            rows.append(KnownCall(f"{module}.{function}", word.strip(), function, title, "", None))
    return rows


def check_step_functions(words: Iterable[str], command: Sequence[str]) -> None:
    """Raise UsageError if one of `words` (module:function) is in what `command` runs as __main__.

    What runs as `python train.py` is that module: nothing happens between the line that makes a
    function of it and the line that calls it, so the function cannot be wrapped in time.
    """
    mains = {"__main__", *list_main_modules(command)}
    for word in words:
        module, _, function = word.partition(":")
        if module in mains:
            raise UsageError(
                f"--step {word}: nothing can be put around a function of the script itself",
                f"Write `with hangbisect.step({function!r}):` in it, or move the function to a "
                "module of its own.",
            )


def list_main_modules(command: Sequence[str]) -> Iterable[str]:
    """Yield the modules that `command` runs as __main__."""
    for at, word in enumerate(command):
        if at and command[at - 1] == "-m":
            yield word
        elif word.endswith(".py"):
            yield os.path.basename(word)[: -len(".py")]


def find_definition(row: KnownCall, module: ModuleType) -> KnownCall | str:
    """Return the row of what `module` really has there, of a class that of its constructor; a
    sentence where it has no such function.
    """
    owner: Any = module
    for name in row.attribute.split("."):
        if not hasattr(owner, name):
            near = nearest(name, (n for n, v in vars(owner).items() if callable(v)))
            return f"--step {row.where}: {_name_owner(owner)} has no {name!r}{near}"
        owner = getattr(owner, name)
    if isinstance(owner, type):
        if "__init__" not in vars(owner):
            return f"--step {row.where}: {_name_owner(owner)} has no constructor of its own"
        return KnownCall(row.call, f"{row.where}.__init__", row.step, row.title, "", None)
    return row


def _name_owner(owner: Any) -> str:
    return str(getattr(owner, "__qualname__", owner.__name__))


Say = Callable[[str], None]


def check_captured_classes(words: Iterable[str], command: Sequence[str]) -> None:
    """Raise UsageError if one of `words` (module:class) is in what `command` runs as __main__."""
    mains = {"__main__", *list_main_modules(command)}
    for word in words:
        if word.partition(":")[0] in mains:
            raise UsageError(
                f"--capture {word}: nothing can be put around a class of the script itself",
                "Write `hangbisect.capture(module)` in it, or move the class to a module of its "
                "own.",
            )


def parse_classes(text: str) -> list[tuple[str, str]]:
    """Return module and class for each of "my.module:Class,..."; what is none is left out."""
    pairs = (word.strip().partition(":") for word in text.split(","))
    return [(module, name) for module, _, name in pairs if module and name]


def capture_class(module: ModuleType, name: str, say: Say) -> Undo | None:
    """Have every object of the class listen from its constructor's end on; return what undoes it
    for later ones. Where there is no such class None, and it is said.
    """
    word = f"--capture {module.__name__}:{name}"
    cls: Any = module
    for part in name.split("."):
        if not hasattr(cls, part):
            near = nearest(part, (n for n, v in vars(cls).items() if isinstance(v, type)))
            say(f"{word}: there is no {part!r}{near}")
            return None
        cls = getattr(cls, part)
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(cls, type) or not issubclass(cls, torch.nn.Module):
        say(f"{word}: it is no class of torch.nn.Module's")
        return None
    # A class without a constructor of its own is made by one that it inherits.
    owner = next(one for one in cls.__mro__ if "__init__" in vars(one))
    listening = _CaptureListener(word, say)

    def begin(args: tuple[Any, ...], _: dict[str, Any]) -> Any:
        return listening.end_of(args[0]) if args and isinstance(args[0], cls) else None

    undo = patch_with_step(sys.modules[owner.__module__], f"{owner.__qualname__}.__init__", begin)
    if undo is None:
        say(f"{word}: its constructor cannot be listened to")
    return undo


class _CaptureListener:
    """Has what is made of a class listen, and says so of the first."""

    def __init__(self, word: str, say: Say) -> None:
        self._word = word
        self._say = say
        self._process = os.getpid()
        self._said = False

    def end_of(self, made: Any) -> Callable[[BaseException | None], None]:
        """Return what is to be called when the constructor of `made` is over."""

        def end(error: BaseException | None) -> None:
            if error is None and os.getpid() == self._process:
                with ignore_our_errors():  # whatever fails of ours, the script runs
                    self._listen(made)

        return end

    def _listen(self, made: Any) -> None:
        from ...captures.forward_hooks import capture

        capture(made)
        if not self._said:
            self._said = True
            self._say(f"{self._word}: it listens to `hangbisect capture on`")


class step:
    """Tell the watch that what is inside is a step; nothing where there is no watch.

    `deadline` in seconds: None is never late.
    """

    def __init__(self, name: str, deadline: float | None = None) -> None:
        """The name is also its title."""
        self._row = KnownCall(name, "", name, f"{name} done", "", deadline)
        self._end: Any = None

    def __enter__(self) -> step:
        """The step begins."""
        side = _find_rank_side()
        self._end = side.begin(self._row) if side is not None else None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The step ends."""
        if self._end is not None:
            self._end(error)


def _find_rank_side() -> Any:
    """Return this process's side of the watch; None where there is no watch, or this is no rank."""
    start: Any = sys.modules.get(f"{__package__}.start")
    if start is None:
        return None
    rank_side = f"{__package__}.rank_side"
    if getattr(sys.modules.get(rank_side), "CURRENT", None) is None:
        with ignore_our_errors():  # whatever fails of ours, the script runs
            start.train()  # before any library that we know
    return getattr(sys.modules.get(rank_side), "CURRENT", None)
