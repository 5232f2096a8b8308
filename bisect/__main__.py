"""The way in, by whatever name: `-m bisect`, `-m hangbisect`, or `python FOLDER`.

Started by its installed name this is an ordinary module. Started from a checkout (by -m, or by the
folder) it puts its own folder into sys.modules as the package `hangbisect` and leaves
`__main__.__spec__` None. So every process that starts us again finds the same package by the path
of this file, whatever the folder it stands in and whichever `bisect` it has loaded:

- multiprocessing's children (spawn, forkserver) run this file as `__mp_main__`
  (multiprocessing/spawn.py, init_main_from_path), which is what makes our classes unpickle there;
- Lightning's own launch runs `python <absolute sys.argv[0]>` (subprocess_script.py).
"""

from __future__ import annotations

import sys

NAME = "hangbisect"


def _become_the_package(file: str) -> None:
    """Make the folder of `file` the package `hangbisect`, in place of any installed one."""
    from importlib.util import module_from_spec, spec_from_file_location
    from os.path import dirname, join, realpath

    folder = dirname(file)
    # `python FOLDER` puts it first in sys.path, where our modules' names could shadow others.
    if __name__ == "__main__" and sys.path[0] and realpath(sys.path[0]) == realpath(folder):
        del sys.path[0]
    for module in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
        del sys.modules[module]  # an installed one's, loaded by its .pth line
    spec = spec_from_file_location(
        NAME, join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)


if __package__ != NAME:
    __file__ = __import__("os").path.abspath(__file__)
    __spec__ = None
    __package__ = NAME
    _become_the_package(__file__)
    if __name__ == "__main__":
        sys.argv[0] = __file__

if __name__ == "__main__":
    from .cli import main

    sys.exit(main())
