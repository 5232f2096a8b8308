"""The commands, found by their names.

A command is a function of an `argv: list[str]`, what follows the command's name, which returns the
exit status: `run` in a module of the command's name, whose docstring is the help; or, in a module
of several (TOGETHER), the function of the command's name, and the help stands in the module's HELP.
Imports at the top of these modules are light: the help reads them all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..base.argument_types import Parser

# Ways we start ourselves, not for the command line.
_INTERNAL_FILE = frozenset(
    {"monitor", "live_table", "make_reports", "matrix_cell", "ray_tasks", "node_task", "node_probe"}
)
INTERNAL = _INTERNAL_FILE | {"walk"}
TOGETHER = {
    **dict.fromkeys(_INTERNAL_FILE, "internal"),
    **dict.fromkeys(("causes", "jobs", "toggles"), "lists"),
    **dict.fromkeys(("bundle", "compare", "merge", "show"), "results"),
    **dict.fromkeys(("isolate", "matrix"), "trials"),
}


def names() -> tuple[str, ...]:
    """Return the names of all commands, the internal ones too."""
    files = (os.path.splitext(name) for name in os.listdir(__path__[0]))
    own = {stem for stem, end in files if end == ".py" and not stem.startswith("_")}
    return tuple(sorted({*own, *TOGETHER} - {*TOGETHER.values()}))


def summaries() -> dict[str, str]:
    """Return the first line of each command's docstring, by name, without the internal ones."""
    import ast  # here: the first line of a rank comes before it
    from importlib import import_module

    found = {}
    for name in names():
        if name in TOGETHER and name not in INTERNAL:
            help = import_module(f".{TOGETHER[name]}", __name__).HELP[name]
        elif name not in INTERNAL:
            with open(os.path.join(__path__[0], f"{name}.py"), encoding="utf-8") as file:
                help = ast.get_docstring(ast.parse(file.read())) or ""
        else:
            continue
        found[name] = help.partition("\n")[0]
    return found


def make_parser(command: str, help: str | None) -> Parser:
    """Return the parser of a command with --help, which prints `help` at its end."""
    from ..base.argument_types import Parser

    parser = Parser(prog=f"hangbisect {command}", epilog=help)
    parser.add_argument("-h", "--help", action="help", help="show this help")
    return parser
