"""What only a hang needs is not loaded before it is needed, or the job has gone on for a while."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from hangbisect.monitor import watch

from ..programs import run_program

PROGRAM = """
import runpy, sys
runpy.run_path(sys.argv[1] + "/__main__.py")  # its package is in sys.modules from here on
import hangbisect.monitor.main
early = {name for name in sys.modules if name.startswith("hangbisect.")}
import hangbisect.monitor.watch
well = {name for name in sys.modules if name.startswith("hangbisect.")}
from hangbisect.monitor import watch
watch.load_parts_for_a_hang()
late = {name for name in sys.modules if name.startswith("hangbisect.")}
from hangbisect.monitor import inquiry
from hangbisect.diagnosis import failure_verdict
from hangbisect.report import stacks, terminal
from hangbisect.report.run_reader import run_files
after = {name for name in sys.modules if name.startswith("hangbisect.")}
print(*early, sep=",")
print(*well, sep=",")
print(*late, sep=",")
print(*after - late, sep=",")
"""


def test_ranks_wait_for_no_module_that_only_a_hang_needs(package: Path) -> None:
    ran = run_program(PROGRAM, str(package))
    early, well, late, missed = (line.split(",") for line in ran.stdout.splitlines())
    for name in ("process_facts", "rank_facts", "verdict_facts"):
        assert f"hangbisect.base.{name}" not in early, "before the first barrier"
    assert "hangbisect.monitor.finalize" in well
    for name in (
        *("diagnosis.failure_verdict", "evidence.look"),
        *("report.terminal", "monitor.inquiry"),
    ):
        assert f"hangbisect.{name}" not in well, "before a job ends well"
        assert f"hangbisect.{name}" in late
    assert missed == [""]


def test_what_is_to_be_loaded_is_there() -> None:
    for name in watch._NEEDED_FOR_A_HANG:
        import_module(f"hangbisect.{name}")
