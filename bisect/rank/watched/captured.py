"""The classes that `--capture MODULE:CLASS` names: what is made of them listens to the switch of
`hangbisect capture`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from ...errors import UsageError
from ...nearest import nearest
from ..torch_functions import Undo
from .own_functions import main_modules
from .wrapping import put_around

Say = Callable[[str], None]


def check_classes(words: Iterable[str], command: Sequence[str]) -> None:
    """Raise UsageError if one of `words` (module:class) is in what `command` runs as __main__."""
    mains = {"__main__", *main_modules(command)}
    for word in words:
        if word.partition(":")[0] in mains:
            raise UsageError(
                f"--capture {word}: nothing can be put around a class of the script itself",
                "Write `hangbisect.capture(module)` in it, or move the class to a module of its "
                "own.",
            )


def classes(text: str) -> list[tuple[str, str]]:
    """Return module and class for each of "my.module:Class,..."; what is none is left out."""
    pairs = (word.strip().partition(":") for word in text.split(","))
    return [(module, name) for module, _, name in pairs if module and name]


def listen_to(module: ModuleType, name: str, say: Say) -> Undo | None:
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
    listening = _Listening(word, say)

    def begin(args: tuple[Any, ...], _: dict[str, Any]) -> Any:
        return listening.end_of(args[0]) if args and isinstance(args[0], cls) else None

    undo = put_around(sys.modules[owner.__module__], f"{owner.__qualname__}.__init__", begin)
    if undo is None:
        say(f"{word}: its constructor cannot be listened to")
    return undo


class _Listening:
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
                with contextlib.suppress(Exception):  # whatever fails of ours, the script runs
                    self._listen(made)

        return end

    def _listen(self, made: Any) -> None:
        from ...captures.listening import capture

        capture(made)
        if not self._said:
            self._said = True
            self._say(f"{self._word}: it listens to `hangbisect capture on`")
