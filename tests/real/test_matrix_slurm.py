"""`hangbisect matrix --slurm`: real tasks of a real Slurm array, whatever becomes of any."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .slurm_here import Slurm
from .test_matrix import QUICK, SLEEPS, record, results, start
from .verdicts import schema, shown
from .whole_jobs import DEADLINE, Job, Jobs

Start = Callable[..., Job]


@pytest.fixture
def queue(slurm: Slurm, jobs_here: Jobs) -> Start:
    """Queue a matrix of a scenario, in a folder of its own if none is given."""

    def queued(scenario: str, *words: str, folder: Path | None = None) -> Job:
        return start(jobs_here, scenario, *words, "--slurm", folder=folder, **slurm.environ)

    return queued


def fresh(queue: Start, scenario: str, *words: str) -> Job:
    return queue(scenario, "mine.yaml", "--run-dir", "run", *words)


def wait_for(path: Path) -> None:
    end = time.monotonic() + DEADLINE
    while not path.exists():
        assert time.monotonic() < end, f"no {path}"
        time.sleep(0.1)


def arrays(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "run/tasks/slurm.json").read_text())[
        "arrays"
    ]
    return found


THREE_CELLS = f"""
arguments: {QUICK}
launcher: ./launcher
limit: 100
watch: {{stall: 2, timeout: 60}}
settings:
  - name: before
  - name: hangs
    arguments: {SLEEPS} --timeout logs_directory=3
  - name: no launcher
    launcher: ./nowhere
"""
FOUR_CELLS = f"""{THREE_CELLS}
  - name: one rank
    ranks: 1
"""
TWO_NODES = """
command: python -c 'import os; print("node", os.environ["SLURM_NODEID"])'
launcher: srun
nodes: 2
ranks: 1
limit: 100
settings:
  - name: both
"""


def test_tasks_run_the_cells_and_one_table_has_all_results(queue: Start, slurm: Slurm) -> None:
    job = fresh(queue, FOUR_CELLS)
    ended = job.end()
    assert results(job.folder) == {
        "before": "ok",
        "hangs": "hang",
        "no launcher": "not started",
        "one rank": "ok",
    }, shown(ended)
    assert ended.status == 3
    jsonschema.validate(record(job.folder), schema("matrix"))
    where = {cell["name"]: cell["where"] for cell in record(job.folder)["cells"]}
    assert "in time.sleep, rank 1" in where["hangs"]
    assert (job.folder / "run" / "02-hangs" / "verdict.json").exists()
    assert re.search(r"^4 cells: 2 ok, 1 hang, 1 not started", ended.out, re.MULTILINE), ended.out
    # Cells of one size are one array.
    assert sorted(array["cells"] for array in arrays(job.folder)) == [[1, 2, 3], [4]]
    assert slurm.is_free()
    assert ended.clean, shown(ended)


def test_a_cell_of_several_nodes_has_them(queue: Start) -> None:
    job = fresh(queue, TWO_NODES)
    ended = job.end()
    assert results(job.folder) == {"both": "ok"}, shown(ended)
    printed = next((job.folder / "run").glob("01-*/output.txt")).read_text()
    assert {"node 0", "node 1"} <= set(printed.splitlines())


WAITS = """
command: sh -c 'touch began-$WHICH; while [ ! -e enough ]; do sleep 0.1; done'
limit: 300
watch: {stall: 250}
settings:
  - name: one
    environment: {WHICH: one}
  - name: two
    environment: {WHICH: two}
"""


def test_a_task_that_is_cancelled_is_killed_and_the_next_start_runs_it_again(
    queue: Start, slurm: Slurm
) -> None:
    job = fresh(queue, WAITS)
    wait_for(job.folder / "began-one")
    wait_for(job.folder / "began-two")
    slurm.ask("scancel", f"{arrays(job.folder)[0]['id']}_2")
    wait_for(job.folder / "run" / "tasks" / "2.json")
    (job.folder / "enough").touch()
    ended = job.end()
    assert results(job.folder) == {"one": "ok", "two": "killed"}, shown(ended)
    assert ended.status == 5
    again = queue(WAITS, "--resume", "run", folder=job.folder).end()
    assert results(job.folder) == {"one": "ok", "two": "ok"}, shown(again)
    assert again.status == 0
    assert [array["cells"] for array in arrays(job.folder)] == [[2]]


def test_an_interruption_empties_the_queue(queue: Start, slurm: Slurm) -> None:
    job = fresh(queue, WAITS, "--jobs", "1")
    wait_for(job.folder / "began-one")
    os.kill(job.running.process.pid, signal.SIGINT)
    ended = job.end()
    assert ended.status == 130, shown(ended)
    assert set(results(job.folder).values()) == {"interrupted"}
    assert "hangbisect matrix --resume run --slurm" in ended.err, shown(ended)
    assert slurm.is_free()
    assert not (job.folder / "began-two").exists()
    assert ended.clean, shown(ended)


def test_tasks_go_on_without_who_queued_them_and_are_not_queued_again(
    queue: Start, slurm: Slurm
) -> None:
    job = fresh(queue, WAITS, "--jobs", "1")
    wait_for(job.folder / "began-one")
    before = arrays(job.folder)
    job.running.process.kill()
    job.running.process.wait()
    again = queue(WAITS, "--resume", "run", folder=job.folder)
    (job.folder / "enough").touch()
    ended = again.end()
    assert results(job.folder) == {"one": "ok", "two": "ok"}, shown(ended)
    assert arrays(job.folder) == before
    assert slurm.is_free()


def test_what_sbatch_refuses_is_said(queue: Start, slurm: Slurm) -> None:
    job = fresh(queue, TWO_NODES, "--sbatch=--partition=nowhere")
    ended = job.end()
    assert ended.status == 1, shown(ended)
    assert "sbatch queued nothing: " in ended.err
    assert "partition" in ended.err
    assert slurm.is_free()
