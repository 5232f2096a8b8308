"""Starts the rank side in a Python below `hangbisect run`, and leaves no trace of having been here.

Python imports the first `sitecustomize` on its path, before the script (site's documentation); this
folder stands first in PYTHONPATH. It is taken out of sys.path again, and the `sitecustomize` that
Python would have found without us is imported in our place. PYTHONPATH stays as it is, so that
children are reached too.

Any Python may read this file: nothing here is newer than Python 2.7, and below 3.9 it only steps
aside. Whatever fails of ours, the script runs.
"""

import os
import sys


def _step_aside():  # type: () -> None
    # Compared as they are written: what is relative has no meaning in a folder that was deleted.
    here = os.path.dirname(__file__)
    sys.path[:] = [p for p in sys.path if not p or os.path.normpath(p) != os.path.normpath(here)]
    sys.path_importer_cache.pop(here, None)


def _start():  # type: () -> None
    folder = os.environ.get("HANGBISECT_PACKAGE")
    if not folder:
        return
    try:
        if sys.version_info < (3, 9):
            raise RuntimeError("Python %d.%d, steps are told from 3.9 on" % sys.version_info[:2])
        _package(folder)
        __import__("hangbisect.rank.watched.start")
        sys.modules["hangbisect.rank.watched.start"].begin()
    except Exception as error:
        if os.environ.get("HANGBISECT_DEBUG"):
            sys.stderr.write("hangbisect: this process is not watched: %r\n" % (error,))


def _package(folder):  # type: (str) -> None
    """Load our package from its folder: the script's Python need not have it installed."""
    if "hangbisect" in sys.modules:
        return
    from importlib.machinery import ModuleSpec, SourceFileLoader  # importlib.util takes longer

    loader = SourceFileLoader("hangbisect", os.path.join(folder, "__init__.py"))
    spec = ModuleSpec("hangbisect", loader, origin=loader.path, is_package=True)
    spec.has_location = True
    spec.submodule_search_locations.append(folder)  # type: ignore[union-attr]  # it is a package
    module = type(sys)("hangbisect")
    module.__spec__, module.__loader__, module.__package__ = spec, loader, "hangbisect"
    module.__file__, module.__path__ = loader.path, [folder]
    sys.modules["hangbisect"] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules["hangbisect"]
        raise


_step_aside()
_start()
# Now what Python would have done. Where there is no other, our own import fails in the way that
# Python's site expects of a `sitecustomize` that does not exist, and says nothing of.
_own = sys.modules.pop("sitecustomize", None)  # kept: Python 2 empties a module that nobody holds
import sitecustomize  # type: ignore  # noqa: E402, F401  # another one: we stepped aside
