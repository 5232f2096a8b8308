"""The program that tries all that needs a GPU: here without one, so only what it does around its
checks. A check that hangs, fails or leaves processes costs its deadline and nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gpu_checks
import pytest
from gpu_check_list import CHECKS
from hangbisect.base.proc import read_stat

_HANGS = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)
"""
_NO_GPU = {"gpus": [], "torch": "2.13.0+cpu"}


def run(name: str, code: str, out: Path, limit: float = 60.0) -> gpu_checks.Row:
    return gpu_checks.run_apart(name, [sys.executable, "-c", code, str(out / "pid")], out, limit)


def test_a_check_that_hangs_costs_its_deadline_and_leaves_nothing(tmp_path: Path) -> None:
    row = run("hangs", _HANGS, tmp_path, 3.0)
    assert (row.result, row.saw) == ("no answer", "none in 3 s")
    about = read_stat(int((tmp_path / "pid").read_text()))
    assert about is None or about.state in "ZX"  # nobody may have asked for its status yet


def test_a_check_that_fails_says_its_last_line(tmp_path: Path) -> None:
    row = run("fails", "raise RuntimeError('no such thing')", tmp_path)
    assert (row.result, row.saw) == ("wrong", "it failed: RuntimeError: no such thing")


def test_a_check_that_is_killed_is_wrong(tmp_path: Path) -> None:
    row = run("dies", "import os; os.abort()", tmp_path)
    assert (row.result, row.saw) == ("wrong", "it failed: status -6")


def test_what_a_check_wrote_is_its_row(tmp_path: Path) -> None:
    (tmp_path / "writes").mkdir()
    told = json.dumps({"result": "right", "saw": "all", "figures": {"x": 1}})
    path = tmp_path / "writes" / "result.json"
    row = run("writes", f"open({str(path)!r}, 'w').write({told!r})", tmp_path)
    assert (row.result, row.saw, row.figures) == ("right", "all", {"x": 1})


_NOT_INSTALLED = """
import sys
import gpu_check_jobs
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in repr(one).lower()]
sys.path[:] = [one for one in sys.path if "site-packages" not in one]
gpu_check_jobs.use_checkout()
from hangbisect.evidence.machine import NVML_PROBE
print(NVML_PROBE)
"""


def test_a_checkout_that_is_not_installed_is_enough() -> None:
    folder = Path(gpu_checks.__file__).parent
    said = subprocess.run(
        [sys.executable, "-c", _NOT_INSTALLED],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert Path(said.strip()) == folder.parent / "bisect/evidence/gpus/nvml_probe.py"


def test_what_a_check_needs_and_is_not_there_is_said() -> None:
    about = {"gpus": [["NVIDIA H200", 1 << 37, "9.0"]], "torch": "2.13.0", "nccl": "2.28.9"}
    check = replace(CHECKS[0], needs=("json", "no_such_module", "py-spy"))
    assert gpu_checks.why_not(check, about, False) == "not installed here: no_such_module"
    assert gpu_checks.why_not(replace(check, needs=()), about, False) == ""
    assert gpu_checks.why_not(CHECKS[3], about | {"nccl": ""}, False) == "torch 2.13.0 has no NCCL"


def test_without_a_gpu_all_is_said_to_be_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_checks, "ask_machine", lambda: _NO_GPU)
    status = gpu_checks.run_all(CHECKS, tmp_path, 60.0, on_cpu=False)
    assert status == gpu_checks.NOTHING_RAN
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["name"] for row in rows] == [check.name for check in CHECKS]
    assert {row["result"] for row in rows} == {"not run"}
    assert all(row["saw"].startswith("no GPU here") for row in rows)
    assert "no GPU here" in capsys.readouterr().out


def test_what_has_no_time_left_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_checks, "ask_machine", lambda: _NO_GPU)
    assert gpu_checks.run_all(CHECKS[1:2], tmp_path, 1.0, on_cpu=True) == 1
    (row,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert row["result"] == "no answer"
    assert "were over before it" in row["saw"]
