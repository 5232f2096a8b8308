"""Programs in other Pythons than ours: each is the same under `run`, and ranks tell their steps.

Each version has one start of a shell that runs all programs, with the watch and without. Where the
watch looks at ranks it is one job, of a rank in each version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hangbisect.rank.watched.command_environment import START_UP

from ..conftest import Start
from ..other_pythons import ALL, WATCHED, interpreter

DEADLINE = 240.0  # seconds
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
# In a `sitecustomize` of one's own.
FAILING = {
    "raises": "raise ValueError('no')",
    "imports what is missing": "import missing",
    "is no Python": "nonsense = (",
}
FLAGS = ("", "-S", "-I", "-E", "-s -B")
# Adds a folder to PYTHONPATH as a user would, in which the watch has put its own already.
BESIDE = 'PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$PWD/%s" '
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


class Ran(NamedTuple):
    """How a program ended, and what it printed."""

    status: int
    stdout: str
    stderr: str


def found(version: str) -> str:
    return interpreter(version) or pytest.skip(f"there is no Python {version} here")


def ran(*command: str, cwd: Path, environ: Mapping[str, str]) -> Ran:
    done = subprocess.run(
        command, cwd=cwd, env={**environ}, capture_output=True, text=True, timeout=DEADLINE
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def watched(*command: str, cwd: Path, environ: Mapping[str, str]) -> Ran:
    """Run a command under `run`."""
    run = [sys.executable, "-I", "-m", "hangbisect", "run", "--run-dir", "run", "--", *command]
    return ran(*run, cwd=cwd, environ=environ)


def without_front(stderr: str) -> str:
    """Return the lines that the outer process has not said at its end."""
    lines = stderr.splitlines(keepends=True)
    return "".join(one for one in lines if not one.startswith("hangbisect: "))


def surroundings(**more: str) -> dict[str, str]:
    """Return an environment in which nothing of the tests' own is seen by a program's Python."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "HANGBISECT_REPORTS": "later", **more}


# ---- the same with us and without ----------------------------------------------------------------


def programs(version: str, folder: Path) -> dict[str, str]:
    """Write files of all kinds that a Python starts from; return shell commands by their names."""
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    own = {f"{name}.py": OWN.format(name) for name in ("sitecustomize", "usercustomize")}
    _write(folder / "own", own)
    flags = [one for one in FLAGS if (one, version) != ("-I", "2.7")]
    made = {f"script {one}": f"{BESIDE % 'own'}$PYTHON {one} program.py" for one in flags}
    for number, (name, text) in enumerate(FAILING.items()):
        _write(folder / f"failing-{number}", {"sitecustomize.py": f"{text}\n"})
        made[f"start-up {name}"] = f"{BESIDE % f'failing-{number}'}$PYTHON -c 'print(1)'"
    with zipfile.ZipFile(folder / "app.pyz", "w") as packed:
        packed.writestr("__main__.py", PROGRAM)
    made["zipapp"] = "$PYTHON app.pyz 'a b'"
    made["standard input"] = "echo 'import sys; print(sys.path)' | $PYTHON -"
    if version != "2.7":
        (folder / "start.py").write_text("x = 'of PYTHONSTARTUP'\n", encoding="utf-8")
        made["prompt"] = "echo 'print(x)' | PYTHONSTARTUP=$PWD/start.py $PYTHON -i -q"
        (folder / "packages.py").write_text(OWN.format("packages"), encoding="utf-8")
        made["venv"] = "[ -d made ] || $PYTHON -m venv --without-pip made"
        into = "made/lib/python*/site-packages"
        made["program of a venv"] = (
            f"cp packages.py $(echo {into})/sitecustomize.py && made/bin/python program.py"
        )
    return made


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def as_script(programs: Mapping[str, str]) -> str:
    """Return a script of the shell: PYTHON and a new folder are its arguments, and what each
    program has said and ended with lies in that folder.
    """
    lines = ['PYTHON=$1; mkdir "$2"']
    for number, command in enumerate(programs.values()):
        into = f'"$2/{number}'
        lines.append(f'({command}) >{into}.out" 2>{into}.err" </dev/null; echo $? >{into}.status"')
    return "\n".join(lines) + "\n"


def all_ran(programs: Mapping[str, str], folder: Path) -> dict[str, Ran]:
    """Return how each program ended. Of sys.path what -S leaves there is left out: no start-up
    file of ours takes it out then.
    """
    ended = {}
    for number, name in enumerate(programs):
        status, out, err = (
            (folder / f"{number}.{kind}").read_text(encoding="utf-8")
            for kind in ("status", "out", "err")
        )
        ended[name] = Ran(int(status), out.replace(f"'{START_UP}', ", ""), err)
    return ended


@pytest.mark.parametrize("version", ALL)
def test_a_program_and_its_own_start_up_files_are_the_same(version: str, tmp_path: Path) -> None:
    """Scripts with the flags that change the start-up, start-up files that fail, of a venv, a
    zipapp, standard input.
    """
    python = found(version)
    cases = programs(version, tmp_path)
    (tmp_path / "programs.sh").write_text(as_script(cases), encoding="utf-8")
    command, environ = ("sh", "programs.sh", python), surroundings()
    under = watched(*command, "under", cwd=tmp_path, environ=environ)
    plain = ran(*command, "plain", cwd=tmp_path, environ=environ)
    assert plain == (0, "", "")
    assert (under.status, under.stdout, without_front(under.stderr)) == plain
    expected = all_ran(cases, tmp_path / "plain")
    assert all_ran(cases, tmp_path / "under") == expected
    statuses = {name: one.status for name, one in expected.items()}
    assert {statuses[f"script {one}"] for one in ("", "-S", "-E")} == {7}, expected
    too_old = version in ALL[: ALL.index(WATCHED[0])]
    said = f"is Python {version}, steps are told from Python 3.9 on"
    assert (said in under.stderr) is too_old


def test_the_environment_has_only_what_the_watch_comes_by(tmp_path: Path) -> None:
    environ = surroundings()  # without a locale: Python makes itself one
    plain = ran("env", "-0", cwd=tmp_path, environ=environ)
    under = watched("env", "-0", cwd=tmp_path, environ=environ)
    assert without_front(under.stderr) == plain.stderr
    more = {*under.stdout.split("\0")} ^ {*plain.stdout.split("\0")}
    assert {name.partition("=")[0].partition("_")[0] for name in more} == {
        "PYTHONPATH",
        "HANGBISECT",
    }


# ---- ranks of one job, each in another Python ----------------------------------------------------

# As torchrun starts ranks, one in each of the Pythons that it is given.
LAUNCHER = """\
import os, subprocess, sys
pythons = sys.argv[2:]
size = str(len(pythons))
run = {"TORCHELASTIC_RUN_ID": sys.argv[1], "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
ranks = []
for rank, python in enumerate(pythons):
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": "1", **run}
    ranks.append(subprocess.Popen([python, "train.py"], env={**os.environ, **own}))
sys.exit(max(one.wait() for one in ranks))
"""
WANDB = """\
import os, time

def init(mode=os.environ.get("WANDB_MODE")):
    if mode not in ("offline", "disabled"):
        open("ready-" + os.environ["RANK"], "w").close()
        time.sleep(600)
"""
LOGS = """\
import argparse
argparse.ArgumentParser().parse_args()
import torch, wandb
wandb.init()
"""


def write_job(folder: Path, script: str, libraries: Mapping[str, str]) -> dict[str, str]:
    """Write a script and the libraries that it finds; return its environment."""
    for name, text in libraries.items():
        file = folder / "libraries" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / "train.py").write_text(script, encoding="utf-8")
    (folder / "torchrun").write_text(LAUNCHER, encoding="utf-8")
    return surroundings(PYTHONPATH=str(folder / "libraries"))


def launch(versions: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that start a rank in each of these Pythons that is here, and which are."""
    here = [one for one in versions if interpreter(one)]
    if not here:
        pytest.skip(f"there is none of the Pythons {', '.join(versions)} here")
    pythons = [found(one) for one in here]
    return [sys.executable, "torchrun", uuid.uuid4().hex, *pythons], here


def test_ranks_tell_their_steps(tmp_path: Path) -> None:
    c10d = "torch/distributed/distributed_c10d.py"
    libraries = {"torch/__init__.py": "__version__ = '2.0'\n", c10d: FAKE_C10D}
    libraries["torch/distributed/__init__.py"] = ""
    environ = write_job(tmp_path, STEPS, libraries) | {"HANGBISECT_DEBUG": "1"}
    command, here = launch(WATCHED)
    status, stdout, stderr = watched(*command, cwd=tmp_path, environ=environ)
    assert (status, stdout) == (0, "done\n" * len(here)), stderr
    for rank in range(len(here)):
        said = "\n".join(one for one in stderr.splitlines() if f"[R{rank}/{len(here)}]" in one)
        for step in ("import_torch: torch imported", "2: Args parsed", "process_group: Process"):
            assert f"CHECKPOINT {step}" in said, (here[rank], stderr)
    assert "not watched" not in stderr


def test_attach_looks_at_ranks_in_any_python(start: Start, tmp_path: Path) -> None:
    libraries = {"torch/__init__.py": "", "wandb/__init__.py": WANDB}
    environ = write_job(tmp_path, LOGS, libraries)
    command, here = launch(ALL)
    job = start(*command, cwd=tmp_path, env={**os.environ, **environ})
    end = time.monotonic() + DEADLINE
    while not all((tmp_path / f"ready-{rank}").exists() for rank in range(len(here))):
        assert time.monotonic() < end
        assert job.poll() is None
        time.sleep(0.05)
    attach = [sys.executable, "-I", "-m", "hangbisect", "attach", str(job.pid), "--run-dir", "run"]
    _, stdout, stderr = ran(*attach, cwd=tmp_path, environ=surroundings())
    assert stdout.startswith("SILENT"), stderr
    assert "__init__.py:6 init < train.py:4 <module>" in stdout
    for rank, version in enumerate(here):
        stack = (tmp_path / "run" / "stacks" / f"rank-{rank}.txt").read_text(encoding="utf-8")
        assert "init" in stack, version


@pytest.mark.parametrize("version", [WATCHED[0], WATCHED[-2]])
def test_isolate_starts_a_job_of_another_python_and_finds_what_helps(
    version: str, tmp_path: Path
) -> None:
    libraries = {"torch/__init__.py": "", "wandb/__init__.py": WANDB}
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    environ = write_job(tmp_path, LOGS, libraries) | place
    isolate = [sys.executable, "-I", "-m", "hangbisect", "isolate", "--yes", "--stall", "2"]
    isolate += ["--only", "wandb", "--confirm", "1"]  # the search is tested elsewhere
    job = [found(version), "train.py"]
    done = ran(*isolate, "--", *job, cwd=tmp_path, environ=environ)
    assert "WANDB_MODE=offline" in done.stdout, done.stdout + done.stderr
