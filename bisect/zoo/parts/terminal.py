"""A terminal for a job, at which nobody types."""

from __future__ import annotations

import sys

# Becomes the command itself, with the terminal's one side as its three streams; a child copies what
# is written to it to where our output went, and ends with the last process that has the terminal.
_AT_A_TERMINAL = """
import os, pty, sys
ours, theirs = pty.openpty()
if os.fork() == 0:
    os.close(theirs)
    while True:
        try:
            os.write(1, os.read(ours, 65536))
        except OSError:
            os._exit(0)
os.close(ours)
for stream in range(3):
    os.dup2(theirs, stream)
os.execvp(sys.argv[1], sys.argv[1:])
"""

TERMINAL = (sys.executable, "-I", "-S", "-c", _AT_A_TERMINAL)  # words in front of a command
