"""What a rank of a pipeline imports before it prints its first line: each import makes it later."""

from __future__ import annotations

from pathlib import Path

from ..programs import run_program

PROGRAM = """
import runpy, sys
runpy.run_path(sys.argv[1] + "/__main__.py")  # its package is in sys.modules from here on
before = set(sys.modules)
from hangbisect.commands import walk
print(*(name for name in sys.modules if name not in before), sep=",")
"""


def test_a_rank_imports_no_message_and_no_socket_before_its_first_line(package: Path) -> None:
    names = run_program(PROGRAM, str(package)).stdout.strip().split(",")
    assert "hangbisect.rank.lines" in names
    late = ("hangbisect.base.events", "hangbisect.rank.monitor_connection", "json", "shutil")
    assert [name for name in late if name in names] == []
