"""A step of a walk (--use arguments=starting_probe:probe) that starts the package again.

Says what it found in the file PROBE_FOUND, as JSON: the folder of the package here and in
children of each kind, the `bisect` that others get, and what Lightning's own command answers.
"""

from __future__ import annotations

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
    """Return what `--version` says when started as Lightning starts its other ranks."""
    from lightning_fabric.strategies.launchers.subprocess_script import _basic_subprocess_cmd

    sys.argv = [sys.argv[0], "--version"]
    command = [str(word) for word in _basic_subprocess_cmd()]
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
