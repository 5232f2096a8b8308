"""`hangbisect matrix`: real cells, each under a real `hangbisect run`, whatever becomes of any."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jobs
import psutil
import pytest

from .verdicts import shown
from .whole_jobs import DEADLINE, Job, Jobs

jsonschema = pytest.importorskip("jsonschema")

QUICK = "--until logs_directory"  # before torch is imported
SLEEPS = "--inject sleep@logs_directory:rank1"
# A launcher without torchrun: importing torch would take longer than all else here.
LAUNCHER = """#!/bin/sh
rank=0
while [ $rank -lt "$NPROC_PER_NODE" ]; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$NPROC_PER_NODE LOCAL_WORLD_SIZE=$NPROC_PER_NODE \\
        MASTER_ADDR=127.0.0.1 MASTER_PORT="${MASTER_PORT:-29537}" "$PYTHON" "$@" &
    rank=$((rank + 1))
done
wait
"""


def start(
    jobs_here: Jobs, scenario: str, *words: str, folder: Path | None = None, **environment: str
) -> Job:
    """Start a matrix of `scenario` in a folder of its own, its run folder where helpers look."""
    if folder is None:
        folder = jobs_here.folder()
        (folder / "launcher").write_text(LAUNCHER)
        (folder / "launcher").chmod(0o755)
        (folder / "mine.yaml").write_text(scenario)
    command = (sys.executable, "-m", "bisect", "matrix", *words)
    environ = {**jobs.clean_environ(), "PYTHON": sys.executable, **environment}
    return jobs_here.add(jobs.Running(command, folder, environ), folder)


def fresh(jobs_here: Jobs, scenario: str, *words: str) -> Job:
    return start(jobs_here, scenario, "mine.yaml", "--run-dir", "run", *words)


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "matrix.json").read_text("utf-8"))
    return found


def results(folder: Path) -> dict[str, str]:
    return {cell["name"]: cell["result"] for cell in record(folder)["cells"]}


def cell_process(job: Job, cell: str, ending: str) -> psutil.Process:
    """Return the process of a cell whose command line ends so, once a rank of it is inside."""
    output = job.folder / "run" / cell / "output.txt"
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        assert job.running.process.poll() is None, shown(job.end())
        if output.exists() and "Injecting" in output.read_text(errors="replace"):
            for pid in job.running.marked():
                try:
                    process = psutil.Process(pid)
                    environ = process.environ()
                    words = " ".join(process.cmdline())
                except psutil.NoSuchProcess:
                    continue
                if cell in environ.get("HANGBISECT_RUN_DIR", "") and re.search(ending, words):
                    return process
        time.sleep(0.05)
    raise AssertionError(f"no process of {cell}:\n{job.said()}")


BAD_CELLS = f"""
arguments: {QUICK}
launcher: ./launcher
limit: 100
watch: {{stall: 2, timeout: 60}}
settings:
  - name: before
  - name: crashes
    arguments: --inject raise@logs_directory
  - name: hangs
    arguments: {SLEEPS} --timeout logs_directory=3
  - name: no launcher
    launcher: ./nowhere
  - name: run is killed
    arguments: {SLEEPS}
  - name: launcher is killed
    arguments: {SLEEPS}
  - name: after
    launcher: python
    ranks: 1
"""


def test_whatever_becomes_of_a_cell_it_is_named_and_all_others_are_done(
    jobs_here: Jobs, package: Path
) -> None:
    job = fresh(jobs_here, BAD_CELLS)
    cell_process(job, "05-run-is-killed", r"\brun -- ").kill()
    cell_process(job, "06-launcher-is-killed", r"/bin/sh \S*launcher ").kill()
    ended = job.end()
    found = results(job.folder)
    assert found == {
        "before": "ok",
        "crashes": "crash",
        "hangs": "hang",
        "no launcher": "not started",
        "run is killed": "killed",
        "launcher is killed": "killed",
        "after": "ok",
    }, shown(ended)
    assert ended.status == 3
    assert ended.clean, shown(ended)
    data = record(job.folder)
    schema = json.loads((package / "data" / "matrix.schema.json").read_text("utf-8"))
    jsonschema.validate(data, schema)
    where = {cell["name"]: cell["where"] for cell in data["cells"]}
    assert "there is no launcher" in where["no launcher"]
    assert "killed from outside" in where["run is killed"]
    assert "its launcher was ended from outside" in where["launcher is killed"]
    assert "in time.sleep, rank 1" in where["hangs"]
    for name in found:
        assert re.search(rf"^\d+  {name} ", ended.out, re.MULTILINE), ended.out


def test_an_interrupted_matrix_goes_on_and_repeats_nothing_that_is_done(jobs_here: Jobs) -> None:
    job = fresh(
        jobs_here,
        BAD_CELLS.partition("  - name: hangs")[0]
        + f"""
  - name: under way
    arguments: {SLEEPS}
  - name: never begun
""",
    )
    cell_process(job, "03-under-way", r"\brun -- ")
    os.kill(job.running.process.pid, signal.SIGINT)
    ended = job.end()
    assert ended.status == 130, shown(ended)
    assert ended.clean, shown(ended)
    assert "hangbisect matrix --resume run" in ended.err
    assert results(job.folder) == {
        "before": "ok",
        "crashes": "crash",
        "under way": "interrupted",
        "never begun": None,
    }
    first = record(job.folder)
    file = job.folder / "mine.yaml"
    # What was under way hung: as it is now, it does not.
    file.write_text(file.read_text().replace(f"{SLEEPS}\n  - name: never", "[]\n  - name: never"))
    began = {path: path.stat().st_mtime_ns for path in job.folder.glob("run/0[12]*/verdict.json")}
    again = start(jobs_here, "", "--resume", "run", folder=job.folder).end()
    assert again.status == 5, shown(again)
    assert results(job.folder) == {
        "before": "ok",
        "crashes": "crash",
        "under way": "ok",
        "never begun": "ok",
    }, shown(again)
    assert record(job.folder)["cells"][:2] == first["cells"][:2]
    assert began == {path: path.stat().st_mtime_ns for path in began}
    assert len(began) == 2
    assert (job.folder / "run" / "03-under-way.before-1").is_dir()
    assert "2 cells done before" in again.err


def test_cells_side_by_side_share_no_port_folder_or_temporary_file(jobs_here: Jobs) -> None:
    script = "import json, os; print('SEES ' + json.dumps(dict(os.environ)), flush=True)"
    job = fresh(
        jobs_here,
        f"""
command: {json.dumps([sys.executable, "-c", script])}
settings: [{{name: one}}, {{name: two}}, {{name: three}}]
""",
        "--jobs",
        "3",
    )
    ended = job.end()
    assert ended.status == 0, shown(ended)
    seen = []
    for output in sorted(job.folder.glob("run/*/output.txt")):
        line = next(x for x in output.read_text().splitlines() if x.startswith("SEES "))
        seen.append(json.loads(line.removeprefix("SEES ")))
    assert len(seen) == 3
    for name in ("MASTER_PORT", "TMPDIR", "WANDB_DIR", "WANDB_CACHE_DIR", "HANGBISECT_RUN_DIR"):
        assert len({environ[name] for environ in seen}) == 3, name
    assert not any(Path(environ["TMPDIR"]).exists() for environ in seen)


def test_the_printed_commands_do_what_the_cells_do(jobs_here: Jobs) -> None:
    job = fresh(jobs_here, BAD_CELLS, "--dry-run")
    ended = job.end()
    assert ended.status == 5
    assert not (job.folder / "run").exists()
    lines = dict(zip(*[iter(ended.out.splitlines())] * 2, strict=True))
    assert "cannot be started" in lines["# 4 no launcher"]
    for name, status in (("# 1 before", 0), ("# 2 crashes", 5)):
        environ = {**jobs.clean_environ(), "PYTHON": sys.executable}
        ran = subprocess.run(
            ["bash", "-c", lines[name]], cwd="/", env=environ, timeout=DEADLINE, capture_output=True
        )
        assert ran.returncode == status, (lines[name], ran)
    crashed = json.loads((job.folder / "run/02-crashes/verdict.json").read_text())
    assert crashed["outcome"] == "crash"


def test_a_matrix_of_ours_is_found_by_its_name(jobs_here: Jobs) -> None:
    ended = start(jobs_here, "", "recommended", "--dry-run").end()
    assert [line for line in ended.out.splitlines() if line.startswith("#")] == [
        "# 1 minimal",
        "# 2 with workers",
        "# 3 one process",
    ]
    assert all(shlex.split(line)[0] == "cd" for line in ended.out.splitlines()[1::2])
