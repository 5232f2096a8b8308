"""Programs in other Pythons than ours: each is the same under `run`, and ranks tell their steps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..conftest import Start
from ..other_pythons import ALL, WATCHED, interpreter

DEADLINE = 120.0  # seconds
# What a program finds of its start-up: its path, the files of site, what it says and ends with.
PROGRAM = """\
import sys
own = [sys.modules.get(name) for name in ("sitecustomize", "usercustomize")]
print(sys.path)
print([(one.__name__, one.__file__, one.VALUE) for one in own if one])
print(sys.argv, sys.flags, sys.excepthook)
sys.stderr.write("the program's own\\n")
sys.exit(7)
"""
OWN = "import sys\nVALUE = 7\nsys.stderr.write('own {0}, path %s\\n' % sys.path)\n"
# What the table of known calls has of torch here: no more than these names.
FAKE_C10D = "def init_process_group(*args, **kwargs):\n    pass\n"
STEPS = """\
import torch
import argparse
from torch.distributed import distributed_c10d
argparse.ArgumentParser().parse_args()
distributed_c10d.init_process_group("gloo")
print("done")
"""


def found(version: str) -> str:
    return interpreter(version) or pytest.skip(f"there is no Python {version} here")


def ran(*command: str, cwd: Path, environ: Mapping[str, str]) -> tuple[int, str, str]:
    """Return status, stdout and stderr of a command."""
    done = subprocess.run(
        command, cwd=cwd, env={**environ}, capture_output=True, text=True, timeout=DEADLINE
    )
    return done.returncode, done.stdout, done.stderr


def watched(*command: str, cwd: Path, environ: Mapping[str, str]) -> tuple[int, str, str]:
    """Return the same of a command under `run`, without what the outer process says at its end."""
    run = [sys.executable, "-I", "-m", "hangbisect", "run", "--run-dir", "run", "--", *command]
    status, stdout, stderr = ran(*run, cwd=cwd, environ=environ)
    lines = stderr.splitlines(keepends=True)
    return status, stdout, "".join(one for one in lines if not one.startswith("hangbisect: "))


def surroundings(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment in which nothing of the tests' own is seen by a program's Python."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "HANGBISECT_REPORTS": "later", **more}


@pytest.mark.parametrize("flags", [[], ["-S"], ["-I"], ["-E"], ["-s", "-B"]], ids=" ".join)
@pytest.mark.parametrize("version", ALL)
def test_a_program_and_its_own_start_up_files_are_the_same(
    version: str, flags: list[str], tmp_path: Path
) -> None:
    python = found(version)
    if flags == ["-I"] and version == "2.7":
        pytest.skip("Python 2.7 has no -I")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    _write_start_up_files(tmp_path / "own")
    environ = surroundings(tmp_path, PYTHONPATH=str(tmp_path / "own"))
    plain = ran(python, *flags, "program.py", cwd=tmp_path, environ=environ)
    under = watched(python, *flags, "program.py", cwd=tmp_path, environ=environ)
    assert without_ours(under) == plain


def _write_start_up_files(folder: Path) -> None:
    folder.mkdir()
    for name in ("sitecustomize", "usercustomize"):
        (folder / f"{name}.py").write_text(OWN.format(name), encoding="utf-8")


def without_ours(ended: tuple[int, str, str]) -> tuple[int, str, str]:
    """Take out of sys.path what -S leaves there: no start-up file of ours takes it out then."""
    from hangbisect.rank.watched.command_environment import START_UP

    return ended[0], ended[1].replace(f"'{START_UP}', ", ""), ended[2]


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("fails", ["raise ValueError('no')", "import missing", "nonsense = ("])
def test_a_start_up_file_that_fails_fails_in_the_same_words(
    version: str, fails: str, tmp_path: Path
) -> None:
    python = found(version)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text(f"{fails}\n", encoding="utf-8")
    environ = surroundings(tmp_path, PYTHONPATH=str(tmp_path / "own"))
    plain = ran(python, "-c", "print(1)", cwd=tmp_path, environ=environ)
    assert watched(python, "-c", "print(1)", cwd=tmp_path, environ=environ) == plain


@pytest.mark.parametrize("version", [one for one in ALL if one != "2.7"])
def test_a_start_up_file_in_site_packages_of_a_venv_runs_as_ever(
    version: str, tmp_path: Path
) -> None:
    venv = [found(version), "-m", "venv", "--without-pip", "made"]
    environ = surroundings(tmp_path)
    assert watched(*venv, cwd=tmp_path, environ=environ) == (0, "", "")
    packages = next((tmp_path / "made" / "lib").glob("python*/site-packages"))
    (packages / "sitecustomize.py").write_text(OWN.format("packages"), encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = (str(tmp_path / "made" / "bin" / "python"), "program.py")
    plain = ran(*command, cwd=tmp_path, environ=environ)
    assert watched(*command, cwd=tmp_path, environ=environ) == plain


@pytest.mark.parametrize("version", ALL)
def test_a_zipapp_and_standard_input_are_the_same(version: str, tmp_path: Path) -> None:
    import zipfile

    python, environ = found(version), surroundings(tmp_path)
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as packed:
        packed.writestr("__main__.py", PROGRAM)
    plain = ran(python, "app.pyz", "a b", cwd=tmp_path, environ=environ)
    assert watched(python, "app.pyz", "a b", cwd=tmp_path, environ=environ) == plain
    (tmp_path / "start.py").write_text("x = 'of PYTHONSTARTUP'\n", encoding="utf-8")
    asked = {**environ, "PYTHONSTARTUP": str(tmp_path / "start.py")}
    typed = ("sh", "-c", f"echo 'print(x)' | {python} -i -q" if version != "2.7" else "true")
    plain = ran(*typed, cwd=tmp_path, environ=asked)
    assert watched(*typed, cwd=tmp_path, environ=asked) == plain
    piped = ("sh", "-c", f"echo 'import sys; print(sys.path)' | {python} -")
    plain = ran(*piped, cwd=tmp_path, environ=environ)
    assert watched(*piped, cwd=tmp_path, environ=environ) == plain


@pytest.mark.parametrize("version", WATCHED)
def test_a_rank_tells_its_steps(version: str, tmp_path: Path) -> None:
    python = found(version)
    package = tmp_path / "libraries" / "torch"
    (package / "distributed").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '2.0'\n", encoding="utf-8")
    (package / "distributed" / "__init__.py").touch()
    (package / "distributed" / "distributed_c10d.py").write_text(FAKE_C10D, encoding="utf-8")
    (tmp_path / "train.py").write_text(STEPS, encoding="utf-8")
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "HANGBISECT_DEBUG": "1"}
    environ = surroundings(tmp_path, PYTHONPATH=str(package.parent), **place)
    status, stdout, stderr = watched(python, "train.py", cwd=tmp_path, environ=environ)
    assert (status, stdout) == (0, "done\n"), stderr
    for step in ("import_torch: torch imported", "2: Args parsed", "process_group: Process group"):
        assert f"CHECKPOINT {step}" in stderr
    assert "not watched" not in stderr


WANDB = """\
import os, time

def init(mode=os.environ.get("WANDB_MODE")):
    if mode not in ("offline", "disabled"):
        time.sleep(600)
"""
LOGS = """\
import argparse
argparse.ArgumentParser().parse_args()
import torch, wandb
wandb.init()
"""


def job_that_logs(folder: Path) -> dict[str, str]:
    """Write a job whose W&B never answers; return its environment."""
    for name, text in (("torch", ""), ("wandb", WANDB)):
        (folder / "libraries" / name).mkdir(parents=True)
        (folder / "libraries" / name / "__init__.py").write_text(text, encoding="utf-8")
    (folder / "train.py").write_text(LOGS, encoding="utf-8")
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    return surroundings(folder, PYTHONPATH=str(folder / "libraries"), **place)


@pytest.mark.parametrize("version", [WATCHED[0], WATCHED[-2]])
def test_isolate_starts_a_job_of_another_python_and_finds_what_helps(
    version: str, tmp_path: Path
) -> None:
    environ = job_that_logs(tmp_path)
    isolate = [sys.executable, "-I", "-m", "hangbisect", "isolate", "--yes", "--stall", "2"]
    job = [found(version), "train.py"]
    done = subprocess.run(
        [*isolate, "--", *job], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert "WANDB_MODE=offline" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("version", ALL)
def test_attach_looks_at_a_job_of_any_python(version: str, start: Start, tmp_path: Path) -> None:
    environ = job_that_logs(tmp_path)
    job = start(found(version), "train.py", cwd=tmp_path, env={**os.environ, **environ})
    attach = [sys.executable, "-I", "-m", "hangbisect", "attach", str(job.pid)]
    _, stdout, stderr = ran(*attach, cwd=tmp_path, environ=surroundings(tmp_path))
    assert stdout.startswith("SILENT"), stderr
    assert "__init__.py:5 init < train.py:4 <module>" in stdout


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8"])
def test_where_it_is_too_old_for_steps_a_sentence_says_so(version: str, tmp_path: Path) -> None:
    run = [
        sys.executable,
        "-I",
        "-m",
        "hangbisect",
        "run",
        "--run-dir",
        "run",
        "--",
        found(version),
    ]
    status, _, stderr = ran(*run, "-c", "", cwd=tmp_path, environ=surroundings(tmp_path))
    assert status == 0
    assert f"is Python {version}, steps are told from Python 3.9 on" in stderr


def test_the_environment_has_only_what_the_watch_comes_by(tmp_path: Path) -> None:
    environ = surroundings(tmp_path)  # without a locale: Python makes itself one
    plain = ran("env", "-0", cwd=tmp_path, environ=environ)
    under = watched("env", "-0", cwd=tmp_path, environ=environ)
    more = {*under[1].split("\0")} ^ {*plain[1].split("\0")}
    assert {name.partition("=")[0].partition("_")[0] for name in more} == {
        "PYTHONPATH",
        "HANGBISECT",
    }
