"""How a case's job is started."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hangbisect.zoo import case_job
from hangbisect.zoo.case import Case, Stage, Truth

CASE = Case(
    id="T1",
    title="made up",
    cluster="C1",
    reports=(),
    truth=Truth(outcome="ok"),
    ranks=4,
    options=("--stall", "5"),
    uses={"model": "build"},
)


def test_the_job_is_started_under_torchrun_with_the_functions_of_the_case() -> None:
    words = case_job.case_command(
        CASE, "T1_made_up", Stage(prefix=("nice",), options=("--plain",)), ["--x"]
    )
    assert words[:2] == ["nice", sys.executable]
    assert "--nproc_per_node=4" in words
    assert words[words.index("--use") + 1] == "model=T1_made_up:build"
    assert words[-4:] == ["--stall", "5", "--plain", "--x"]  # later words win


def test_without_a_launcher_python_starts_one_process() -> None:
    words = case_job.case_command(replace(CASE, launcher="python"), "T1_made_up", Stage())
    assert words[0] == sys.executable
    assert not any("torch" in word for word in words)


def test_nothing_of_the_users_own_job_reaches_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    foreign = {
        "RANK": "3",
        "WANDB_API_KEY": "secret",
        "HF_TOKEN": "secret",
        "SLURM_JOB_ID": "7",
        "https_proxy": "http://proxy",
        "MASTER_ADDR": "far",
    }
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    environ = case_job._make_environ(Path("/somewhere"))
    assert not set(foreign) & set(environ)
    assert environ["HOME"] == "/somewhere/h"
    assert environ["LD_LIBRARY_PATH"] == "/opt/lib"
