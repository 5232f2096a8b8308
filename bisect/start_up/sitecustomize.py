"""Starts the rank side in a Python below `hangbisect run`, and leaves no trace of having been here.

Python imports the first `sitecustomize` on its path, before the script (site's documentation); this
folder stands first in PYTHONPATH. It is taken out of sys.path again, and the `sitecustomize` that
Python would have found without us is imported in our place. PYTHONPATH stays as it is, so that
children are reached too.

Any Python may read this file: nothing here is newer than Python 2.7, and below 3.11 it only steps
aside. Whatever fails of ours, the script runs.
"""

import os
import sys


def _step_aside():  # type: () -> None
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if not p or os.path.abspath(p) != here]
    sys.path_importer_cache.pop(here, None)


def _start():  # type: () -> None
    folder = os.environ.get("HANGBISECT_PACKAGE")
    if not folder or sys.version_info < (3, 11):
        return
    try:
        _package(folder)
        __import__("hangbisect.rank.watched.start")
        sys.modules["hangbisect.rank.watched.start"].begin()
    except Exception as error:
        if os.environ.get("HANGBISECT_DEBUG"):
            sys.stderr.write(f"hangbisect: this process is not watched: {error!r}\n")


def _package(folder):  # type: (str) -> None
    """Load our package from its folder: the script's Python need not have it installed."""
    if "hangbisect" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    file = os.path.join(folder, "__init__.py")
    spec = spec_from_file_location("hangbisect", file, submodule_search_locations=[folder])
    module = module_from_spec(spec)  # type: ignore[arg-type]  # it is there: the folder is ours
    sys.modules["hangbisect"] = module
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]  # the same
    except BaseException:
        del sys.modules["hangbisect"]
        raise


_step_aside()
_start()
# Now what Python would have done. Where there is no other, our own import fails in the way that
# Python's site expects of a `sitecustomize` that does not exist, and says nothing of.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # type: ignore  # noqa: E402, F401  # another one: we stepped aside
