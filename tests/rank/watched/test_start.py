"""What is decided before a script runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hangbisect.rank.watched import command_environment
from hangbisect.rank.watched.command_environment import variables
from hangbisect.rank.watched.process_role import GroupNumbers, read_group_numbers
from hangbisect.rank.watched.programs import is_hangbisect, is_launcher, program

URL = "tcp://n1:29500?rank=1&world_size=4"


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["train.py", "a"], ["python", "-u", "train.py", "a"], "train.py"),
        (["-m", "x"], ["python", "-m", "torch.distributed.run", "x"], "torch.distributed.run"),
        (["-m"], ["python", "-um", "json.tool"], "json.tool"),
        (["-m", "x"], ["python", "-mjson.tool", "x"], "json.tool"),
        (["-c", "x"], ["python", "-c", "pass", "x"], "-c"),
        ([""], ["python"], ""),
    ],
)
def test_what_python_runs_is_read_from_its_command_line(
    argv: list[str], original: list[str], expected: str
) -> None:
    assert program(argv, original) == expected


@pytest.mark.parametrize("name", ["/venv/bin/torchrun", "accelerate.commands.launch", "deepspeed"])
def test_launchers_are_no_ranks(name: str) -> None:
    assert is_launcher(name)


@pytest.mark.parametrize("name", ["train.py", "/home/me/accelerate.py", "torchrun.py", "-c", ""])
def test_scripts_are_no_launchers(name: str) -> None:
    assert not is_launcher(name)


def test_we_do_not_watch_ourselves(package: Path) -> None:
    for what in ("hangbisect", "bisect", "/x/bin/hangbisect", str(package)):
        assert is_hangbisect(what, str(package))
    assert not is_hangbisect("/home/me/train.py", str(package))


@pytest.mark.parametrize(
    ("args", "kwargs", "environ", "expected"),
    [
        (("gloo",), {"rank": 1, "world_size": 2}, {}, GroupNumbers(1, 2)),
        (("gloo", None, None, 2, 1), {}, {}, GroupNumbers(1, 2)),
        ((), {"init_method": URL}, {}, GroupNumbers(1, 4)),
        (("gloo",), {}, {"RANK": "3", "WORLD_SIZE": "4"}, GroupNumbers(3, 4)),
        (
            ("gloo",),
            {"rank": 0, "world_size": 2},
            {"RANK": "3", "WORLD_SIZE": "4"},
            GroupNumbers(0, 2),
        ),
        (("gloo",), {}, {}, None),
        (("gloo",), {"rank": 5, "world_size": 2}, {}, None),
    ],
)
def test_a_group_says_which_rank_joins_it(
    args: tuple[object, ...],
    kwargs: dict[str, object],
    environ: dict[str, str],
    expected: GroupNumbers | None,
) -> None:
    assert read_group_numbers(args, kwargs, environ) == expected


def test_the_variables_reach_a_python_and_are_not_given_twice() -> None:
    once = variables({"run-dir": "/r", "stall": "5"}, {"PYTHONPATH": "/mine"})
    assert once["PYTHONPATH"] == os.pathsep.join([command_environment.START_UP, "/mine"])
    assert (once["HANGBISECT_RUN_DIR"], once["HANGBISECT_STALL"]) == ("/r", "5")
    assert variables({}, once)["PYTHONPATH"] == once["PYTHONPATH"]


def asked(code: str, *flags: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **variables({}), "HANGBISECT_DEBUG": "1", **more}
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


def test_a_script_that_imports_nothing_we_know_hears_and_sees_nothing_of_us() -> None:
    code = "import sys; print(sys.path, 'sitecustomize' in sys.modules, sys.excepthook)"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    watched = asked(code)
    hook = "<built-in function excepthook>"
    assert watched.stdout == plain.stdout
    assert hook in watched.stdout
    assert watched.stderr == ""


def test_the_next_sitecustomize_runs_as_it_would_have(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("value = 7\n")
    path = os.pathsep.join([command_environment.START_UP, str(tmp_path)])
    said = asked("import sitecustomize as s; print(s.value, s.__name__)", PYTHONPATH=path)
    assert (said.stdout, said.stderr) == ("7 sitecustomize\n", "")


def test_an_error_of_ours_is_swallowed(tmp_path: Path) -> None:
    said = asked("print(1)", HANGBISECT_PACKAGE=str(tmp_path))
    assert said.stdout == "1\n"
    assert "not watched" in said.stderr
    assert asked("print(1)", HANGBISECT_PACKAGE=str(tmp_path), HANGBISECT_DEBUG="").stderr == ""


def test_the_own_step_is_there_without_a_watch_and_does_nothing() -> None:
    import hangbisect

    with hangbisect.step("index"):
        pass
    said = asked("import hangbisect\nwith hangbisect.step('index'): print(2)")
    assert said.stdout == "2\n", said.stderr


def test_little_is_imported_where_no_rank_is() -> None:
    code = "import sys; print(*sorted(n for n in sys.modules if n.startswith('hangbisect')))"
    said = asked(code)
    assert "watched.start" in said.stdout
    assert "known_calls" not in said.stdout
