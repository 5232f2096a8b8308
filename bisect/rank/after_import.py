"""Call a function as soon as a module has been imported, before the code that imported it goes on;
or just before it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .tracebacks import without_our_frame

Then = Callable[[ModuleType], None]
Before = Callable[[], None]


def after_import(name: str, then: Then) -> None:
    """Call then(module) once module `name` is imported: now, if it has been; else when it is.

    It is called under the module's import lock, in whichever thread imports it, and what it raises
    is raised by that import: `then` must see to it that it raises nothing.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        then(module)
        return
    _FINDER.wanted.setdefault(name, []).append(then)
    _look_first()


def before_import(name: str, call: Before, failed: Before = lambda: None) -> None:
    """Call call() just before the code of module `name` runs; never, if it has been imported. Call
    failed() if that code raises something.

    Being looked for is not enough (importlib.util.find_spec). They must raise nothing, as above.
    """
    if name not in sys.modules or name in _FINDER.beginning:
        _FINDER.announced.setdefault(name, []).append((call, failed))
        _look_first()


def wait_no_more(calls: Collection[Then | Before]) -> None:
    """Forget the functions `calls`, whatever module they wait for. Where nothing else is waited
    for, imports are as without us.
    """
    forgotten = {id(call) for call in calls}
    for name, wanted in list(_FINDER.wanted.items()):
        wanted[:] = [then for then in wanted if id(then) not in forgotten]
        if not wanted:
            del _FINDER.wanted[name]
    for name, announced in list(_FINDER.announced.items()):
        announced[:] = [pair for pair in announced if id(pair[0]) not in forgotten]
        if not announced:
            del _FINDER.announced[name]
    _FINDER.leave()


class _Finder:
    """A finder that finds nothing itself: it asks the others, and marks what they found.

    The module's own loader stays its loader (its `exec_module` is taken back at once), so that
    code that looks at `__spec__` or `__loader__` sees no difference.
    """

    def __init__(self) -> None:
        self.wanted: dict[str, list[Then]] = {}
        self.announced: dict[str, list[tuple[Before, Before]]] = {}
        self.beginning: set[str] = set()  # modules whose code runs next

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.wanted and name not in self.announced:
            return None
        spec = _from_the_others(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if not hasattr(loader, "exec_module") or isinstance(loader, type):
            self.take(name)
        else:
            _mark(loader, name)
        return spec

    def take(self, name: str) -> tuple[list[tuple[Before, Before]], list[Then]]:
        """Return what is to be called before and after `name`, and wait for it no more."""
        taken = self.announced.pop(name, []), self.wanted.pop(name, [])
        self.leave()
        return taken

    def leave(self) -> None:
        """Remove this finder from sys.meta_path, if there is nothing to wait for."""
        if not self.wanted and not self.announced and self in sys.meta_path:
            sys.meta_path.remove(self)


_FINDER = _Finder()


def _look_first() -> None:
    if not any(finder is _FINDER for finder in sys.meta_path):
        sys.meta_path.insert(0, _FINDER)


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


def _about_to_run(name: str) -> list[Before]:
    """Call what is to be called before module `name`; return what is to be called if it fails.

    What is called may want more of the same module.
    """
    failed: list[Before] = []
    _FINDER.beginning.add(name)
    try:
        while announced := _FINDER.announced.pop(name, []):
            for call, if_failed in announced:
                call()
                failed.append(if_failed)
    finally:  # a handler of the job's may raise meanwhile
        _FINDER.beginning.discard(name)
    return failed


def _mark(loader: Any, name: str) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        if module.__name__ != name:  # a loader of many modules
            execute(module)
            return
        vars(loader).pop("exec_module", None)
        failed = _about_to_run(name)
        try:
            execute(module)
        except BaseException as error:
            for call in failed:
                call()
            _FINDER.take(name)
            # Python leaves its own frames out of what an import raises, if none other is between.
            without_our_frame(error)
            raise
        for then in _FINDER.take(name)[1]:
            then(module)

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a loader without a __dict__: go without
        _FINDER.take(name)
