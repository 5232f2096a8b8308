"""A step of a walk (--use arguments=starting_probe:probe) that starts the package again.

Says what it found in the file PROBE_FOUND, as JSON: the folder of the package here and in
children of each kind, the `bisect` that others get, and what Lightning's own command answers.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

DEADLINE = 120.0


def folder_of(thing: object) -> str:
    """Return the folder of the package that the class of `thing` is in."""
    return os.path.dirname(sys.modules[type(thing).__module__.partition(".")[0]].__file__ or "")


def answer(thing: object, queue: SimpleQueue[str]) -> None:
    queue.put(folder_of(thing))


def ask_a_child(thing: object, queue: SimpleQueue[str]) -> None:
    """A worker that starts workers."""
    queue.put(child("spawn", thing))


def child(method: str, thing: object, target: Any = answer) -> str:
    context: Any = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=target, args=(thing, queue))
    process.start()
    process.join(DEADLINE)
    assert process.exitcode == 0
    said: str = queue.get()
    return said


def relaunched() -> str:
    """Return what `--version` says when started as Lightning starts its other ranks.

    The function that says how is read out of Lightning's file: to import it takes all of torch.
    """
    package = importlib.util.find_spec("lightning_fabric")
    assert package is not None
    file = Path(str(package.origin)).parent / "strategies/launchers/subprocess_script.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    text = ast.unparse(names["_basic_subprocess_cmd"])
    theirs: dict[str, Any] = {"os": os, "sys": sys}
    exec(f"from __future__ import annotations\n{text}", theirs)
    sys.argv = [sys.argv[0], "--version"]
    command = [str(word) for word in theirs["_basic_subprocess_cmd"]()]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    return asked.stdout + asked.stderr


def probe(given: Any) -> None:
    thing = given.context.step  # any object of a class of ours
    import bisect

    os.chdir("/")
    found = {
        "package": folder_of(thing),
        "bisect": bisect.__file__,
        "spawn": child("spawn", thing),
        "forkserver": child("forkserver", thing),
        "nested": child("spawn", thing, ask_a_child),
        "relaunched": relaunched(),
    }
    Path(os.environ["PROBE_FOUND"]).write_text(json.dumps(found))
