"""Makes `python -m bisect` mean us, once we are installed.

The wheel's one-line .pth imports this module in a process whose command line says `-m bisect`, and
in no other. There it takes the place of the function that runs the module of -m (runpy.py), so
that the name `bisect` leads to us; the standard library's module stays what it is. Executed twice
(.pth lines may be), it changes nothing more: a module is loaded once.

In a checkout of ours the checkout is started, as -m does everywhere: what one stands in wins.
"""

from __future__ import annotations

# Only what every -m has loaded: `typing` alone would be a tenth of the time to the first line.
import os
import runpy
import sys

_run_module_as_main = runpy._run_module_as_main  # type: ignore[attr-defined]


def _run(mod_name: str, alter_argv: bool = True) -> object:
    if mod_name not in ("bisect", "bisect.__main__"):
        return _run_module_as_main(mod_name, alter_argv)
    checkout = _checkout()
    if checkout is None:
        return _run_module_as_main(f"{__package__}.__main__", alter_argv)
    # Not by name: where a .pth has imported `random`, the name is the standard library's already.
    sys.path.insert(0, checkout)
    return _run_module_as_main("__main__", False)


def _checkout() -> str | None:
    """Return the folder `bisect` of a checkout of ours that -m looks at first, None without one."""
    if sys.flags.safe_path or not sys.path:
        return None
    folder = os.path.join(os.path.abspath(sys.path[0]), "bisect")
    return folder if os.path.isfile(os.path.join(folder, "_minus_m.py")) else None


runpy._run_module_as_main = _run  # type: ignore[attr-defined]
