"""Programs of a few lines, each run by a Python of its own."""

from __future__ import annotations

import subprocess
import sys

DEADLINE = 60.0  # seconds
# Before `import torch`, where a program is not about compilation: its first optimizer imports
# torch._dynamo (torch/_compile.py), 1.6 seconds of a core, and asks it for two functions; a process
# group asks for one where it is imported (distributed_c10d.py). Not for DDP, which asks for more.
WITHOUT_COMPILER = """
import sys, types
compiler = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
compiler.disable = lambda function, *rest, **more: function
compiler.graph_break = lambda: None
compiler.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
"""


def run_program(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, and return what it printed. Raises CalledProcessError if it fails."""
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
