"""Call a function as soon as a module has been imported, before whoever imported it goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]


def after_import(name: str, then: Then) -> None:
    """Call then(module) once module `name` is imported: now, if it has been; else when it is.

    It is called under the module's import lock, in whichever thread imports it, and what it raises
    is raised by that import: `then` must see to it that it raises nothing.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        then(module)
        return
    if not any(finder is _FINDER for finder in sys.meta_path):
        sys.meta_path.insert(0, _FINDER)
    _FINDER.wanted.setdefault(name, []).append(then)


class _Finder:
    """A finder that finds nothing itself: it asks the others, and marks what they found.

    The module's own loader stays its loader (its `exec_module` is taken back at once), so that
    nobody who looks at `__spec__` or `__loader__` sees a difference.
    """

    def __init__(self) -> None:
        self.wanted: dict[str, list[Then]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        wanted = self.wanted.pop(name, None)
        if wanted is None:
            return None
        if not self.wanted and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = _from_the_others(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None and hasattr(loader, "exec_module"):
            _mark(loader, wanted)
        return spec


_FINDER = _Finder()


def _from_the_others(
    name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        if finder is _FINDER or not hasattr(finder, "find_spec"):
            continue
        spec: ModuleSpec | None = finder.find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


def _mark(loader: Any, wanted: Sequence[Then]) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        execute(module)
        for then in wanted:
            then(module)

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a loader without a __dict__: go without
        return
