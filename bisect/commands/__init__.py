"""The commands: a small module each, found by its name, its docstring the help.

A command module has `run(argv: list[str]) -> int`, which gets what follows the command's name and
returns the exit status. Its imports at the top are light: the help reads every docstring.
"""

from __future__ import annotations

import os

# Ways we start ourselves, not for the command line.
INTERNAL = frozenset({"walk", "monitor", "live_table", "make_reports"})


def names() -> tuple[str, ...]:
    """Return the names of all commands, the internal ones too."""
    files = (os.path.splitext(name) for name in os.listdir(__path__[0]))
    return tuple(sorted(stem for stem, end in files if end == ".py" and not stem.startswith("_")))


def summaries() -> dict[str, str]:
    """Return the first line of each command's docstring, by name, without the internal ones."""
    import ast  # here: the first line of a rank comes before it

    found = {}
    for name in names():
        if name not in INTERNAL:
            with open(os.path.join(__path__[0], f"{name}.py"), encoding="utf-8") as file:
                found[name] = (ast.get_docstring(ast.parse(file.read())) or "").partition("\n")[0]
    return found
