"""Helper processes of a case, and their end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

# In front of each program: it ends when its standard input does, whatever it is doing then. If it
# has an `at_end`, that is called first.
_ENDS_WITH_ITS_INPUT = """
import os, sys, threading
def _wait_for_the_end():
    sys.stdin.buffer.read()
    try:
        globals().get("at_end", int)()
    finally:
        os._exit(0)
threading.Thread(target=_wait_for_the_end, daemon=True).start()
def ready(word=""):
    print(word, flush=True)
"""


@dataclass(frozen=True)
class Helper:
    """A helper process that is ready; `said` is the word it was ready with (a port, say)."""

    pid: int
    said: str


@contextlib.contextmanager
def helper(program: str, *words: object, limit: float = 10.0) -> Iterator[Helper]:
    """Run a Python program (its source) beside the job until the block is left.

    The program has `words` in sys.argv[1:], calls `ready("...")` once it is, and may then block as
    it likes. A function `at_end` of it is called at the end, also when we are killed; it has
    `limit` seconds. Standard library only. Raises RuntimeError if it ends before it is ready.
    """
    command = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_ITS_INPUT + program, *map(str, words)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: what it undoes must not be cut short
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        said = child.stdout.readline()
        if not said:
            raise RuntimeError(f"a helper of this case ended at once (status {child.wait()})")
        yield Helper(child.pid, said.strip())
    finally:
        child.stdin.close()
        child.stdout.close()
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
