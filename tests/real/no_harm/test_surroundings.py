"""Odd places and odd ways of starting: the program is as it is without us."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .side_by_side import Beside, Both, Started, at_once, can_mount

needs_mounts = pytest.mark.skipif(not can_mount(), reason="no mount namespace may be made here")
RANK = "$RUN $PYTHON $PROGRAMS/ends_with.py 0.2 7 rank"
PLAIN = "$RUN bash -c 'echo out; echo err >&2; exit 7'"


def test_a_folder_that_is_gone(beside: Beside) -> None:
    _both_end(beside, "mkdir d; cd d; rmdir ../d; {}; echo $?", "theirs")


@pytest.mark.skipif(os.getuid() != 0, reason="another user")
def test_a_folder_that_may_not_be_read_or_written(beside: Beside) -> None:
    def close(folder: Path) -> None:
        (folder / "cwd" / "closed").mkdir(mode=0o111)

    _both_end(beside, "cd closed; {}; echo $?", prepare=close, user=54321)


@needs_mounts
@pytest.mark.parametrize("places", ["/dev/shm", "/dev/shm $TMPDIR $HOME /tmp"])
def test_folders_that_may_not_be_written(beside: Beside, places: str) -> None:
    own = [place for place in places.split() if not _holds_us(place)]
    script = "".join(f"mount -t tmpfs -o ro t {place}; " for place in own)
    _both_end(beside, script + "unset XDG_RUNTIME_DIR; {}; echo $?")


def _both_end(beside: Beside, script: str, *but: str, **how: Any) -> None:
    """Assert that a command and a rank end in `script` as without us."""

    def run(program: str) -> Both:
        return beside(script.format(program), **how).check(*but)

    for both in at_once(partial(run, PLAIN), partial(run, RANK)):
        assert "7\n" in both.plain.out, both


def _holds_us(place: str) -> bool:
    needed = (sys.prefix, str(Path(__file__).resolve()), os.path.realpath("/tmp/x"))
    return any(path.startswith(place.rstrip("/") + "/") for path in needed) and place != "/dev/shm"


@needs_mounts
def test_nothing_at_all_may_be_written(beside: Beside) -> None:
    """A container with a read-only root, and no volume: not even the run folder can be made."""
    script = (
        "for place in /dev/shm $TMPDIR $HOME $XDG_RUNTIME_DIR $PWD $PWD/..; do "
        "mount --bind $place $place; mount -o remount,bind,ro $place; done; cd .; "
    )
    both = beside(f"{script}{RANK}; echo $?").check()
    assert both.plain.out == "ends\n7\n", both


# What is odd in different ways, together: which it was is soon found where one fails.
ODD = (
    "unset HOME TMPDIR XDG_RUNTIME_DIR; export LC_ALL=C LANG=C PYTHONSAFEPATH=1",
    "unset PATH; TMPDIR=relative; export PYTHONOPTIMIZE=2 PYTHONIOENCODING=ascii",
    "HOME=/no/such/home; TMPDIR=/no/such/place; export TZ=Pacific/Auckland PYTHONDEVMODE=1",
    f"TMPDIR=/tmp/{'long' * 40}; export PYTHONWARNINGS=error PYTHONNOUSERSITE=1",
)


def test_the_environment_is_odd(beside: Beside) -> None:
    def run(odd: str) -> Both:
        return beside(f"{odd}; $RUN $PYTHON $PROGRAMS/ends_with.py 0.1 0 rank; echo $?").check()

    for both in at_once(*(partial(run, odd) for odd in ODD)):
        assert both.plain.out == "ends\n0\n", both


def test_files_of_ours_are_the_users_alone(beside: Beside) -> None:
    """And the program's own have the modes that its umask gives them."""

    def run(umask: str) -> Both:
        script = f"umask {umask}; {RANK}; umask; touch made; stat -c %a made; rm -f made"
        return beside(script).check()

    for both in at_once(*(partial(run, umask) for umask in ("000", "077", "777"))):
        folder = both.watched.folder / "run"
        for path in [folder, *folder.rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert not mode & 0o077, (path, oct(mode))


def _pyenv(version: str) -> str:
    for base in (Path.home() / ".pyenv" / "versions", Path("/root/.pyenv/versions")):
        for found in sorted(base.glob(f"{version}.*/bin/python")) if base.is_dir() else ():
            return str(found)
    return shutil.which(f"python{version}") or ""


@functools.cache
def _pythons() -> list[str]:
    versions = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.12", "3.13", "3.14")
    return [python for python in map(_pyenv, versions) if python]


@pytest.mark.skipif(not _pythons(), reason="no other Python is here")
@pytest.mark.parametrize("program", ["nothing", "trains"])
def test_other_pythons_run_their_own_sitecustomize(beside: Beside, program: str) -> None:
    """Old and new, among the children of what is watched."""

    def customize(folder: Path) -> None:
        own = folder / "home" / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text("import sys\nsys.customized = 'customized'\n")
        (own / "torch.py").write_text("")
        text = "import sys; print('%d.%d %s' % (sys.version_info[:2] + (sys.customized,)))\n"
        (folder / "cwd" / "nothing.py").write_text(text)
        (folder / "cwd" / "trains.py").write_text("import torch\n" + text)

    runs = "; ".join(f"{python} {program}.py" for python in _pythons())
    script = f"PYTHONPATH=$HOME/own; export PYTHONPATH; $RUN bash -c '{runs}; rm -r *.py $HOME/own'"
    both = beside(script, prepare=customize, environ={"PYTHONDONTWRITEBYTECODE": "1"}).check()
    assert both.plain.out.count(" customized\n") == len(_pythons()), both


def test_two_runs_in_one_run_folder_keep_both_verdicts(beside: Beside) -> None:
    """The second, which is short, takes nothing away from the first."""
    first = "$RUN $PYTHON $PROGRAMS/ends_with.py 5 7 rank"
    second = "$RUN $PYTHON $PROGRAMS/ends_with.py 0.5 8 rank"
    both = beside(
        f"{first} >one & sleep 2; {second}; echo $?; wait $!; s=$?; cat one; echo $s"
    ).check()
    assert both.plain.out == "ends\n8\nends\n7\n", both
    verdicts = [path.read_text() for path in both.watched.folder.rglob("verdict.json")]
    assert len(verdicts) == 2, both


def test_a_token_in_an_exception_is_in_no_file(beside: Beside) -> None:
    both = beside(
        "$RUN $PYTHON $PROGRAMS/tells.py --api-key sk-abcdefghijklmnopqrstuvwx0123456789ABCDEF",
        environ={"HF_TOKEN": "hf_" + "abcDEF123" * 4, "WANDB_API_KEY": "0123456789" * 4},
        watch=("--stall", "2"),
    ).check()
    run = both.watched.folder / "run"
    for path in filter(Path.is_file, run.rglob("*")):
        text = path.read_bytes().decode(errors="replace")
        for secret in ("hf_abcDEF123", "0123456789" * 4, "sk-abcdefghij", "u:p@ss"):
            assert secret not in text, (path, secret)
    ours = "\n".join(both.watched.ours)
    assert "hf_abcDEF123" not in ours, ours


def test_programs_that_outlive_the_command_outlive_it(beside: Beside) -> None:
    """A daemon that left its session is no part of the job, however that ends."""
    script = "$RUN bash -c '{ setsid nohup sleep 32 & } >/dev/null 2>&1; sleep 1; exit 7'; echo $?"
    both = beside(script).check()
    assert both.plain.left == ("sleep 32",), both


def test_a_program_in_the_background_outlives_the_shell_that_is_watched(beside: Beside) -> None:
    both = beside("$RUN bash -c 'sleep 31 >/dev/null 2>&1 & exit 7'; echo $?").check()
    assert both.plain.left == ("sleep 31",), both


def test_a_child_that_keeps_the_output_open_keeps_no_reader_longer_than_without_us(
    beside: Beside,
) -> None:
    """`| cat` ends when the last writer does: none of ours is one."""
    both = beside("$RUN bash -c 'echo a; sleep 1' | cat; echo done; (" + RANK + " | cat) 2>&1 | "
                  "grep ends").check()  # fmt: skip
    assert both.plain.out == "a\ndone\nends\n", both


def test_a_chain_of_programs_that_become_one_another(beside: Beside) -> None:
    script = (
        "exec $RUN bash -c 'exec env A=1 nice -n 1 sh -c \"exec setsid -w $PYTHON "
        "$PROGRAMS/ends_with.py 0.2 7 rank\"'"
    )
    assert beside(script).check().plain.status == 7


@pytest.mark.skipif(shutil.which("unshare") is None or os.getuid() != 0, reason="needs root")
def test_a_program_of_a_namespace_of_its_own(beside: Beside) -> None:
    """Containers without privileges: user, pid, mount, network."""

    def run(flags: str) -> Both:
        script = f"$RUN unshare {flags} $PYTHON $PROGRAMS/ends_with.py 0.2 7 rank; echo $?"
        # With a namespace of pids the kernel kills all in it, a monitor of ours as well.
        stays = "^(shm|tmp|xdg|slash_tmp)/hangbisect" if "p" in flags else ""
        return beside(script, may_stay=stays).check()

    for both in at_once(*(partial(run, flags) for flags in ("-r", "-rpf --mount-proc", "-niu"))):
        assert both.plain.out == "ends\n7\n"


def test_a_program_that_gains_or_drops_privileges(beside: Beside) -> None:
    """It may then not be looked at, and its files are another user's."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    drop = "setpriv --reuid=54321 --regid=54321 --clear-groups"
    runs = (
        partial(beside, f"$RUN {drop} bash -c 'id -u; exec sleep 5'", watch=("--stall", "2")),
        partial(beside, "$RUN su nobody -s /bin/sh -c 'id -un; umask; exit 7'"),
        partial(beside, "$RUN /usr/bin/passwd --status; echo $?", user=54321),
    )
    dropped, changed, gained = at_once(*runs)
    assert dropped.check().plain.out == "54321\n"
    assert changed.check().plain.status == 7
    gained.check()


def test_a_program_has_no_child_that_it_did_not_start(beside: Beside) -> None:
    beside("$RUN bash -c 'ps -o comm= --ppid $$'").check()


def test_we_are_process_one_of_a_container(beside: Beside) -> None:
    if not can_mount():
        pytest.skip("needs namespaces")
    inner = 'exec $RUN bash -c "(sleep 0.5; sleep 0.5) & $PYTHON $PROGRAMS/ends_with.py 2 7 rank"'
    script = f"unshare -pf --mount-proc bash -c '{inner}'; echo $?"
    assert beside(script).check().plain.out == "ends\n7\n"


def test_a_signal_to_process_one_of_a_container_reaches_the_program(beside: Beside) -> None:
    """A `docker stop`: SIGTERM to process 1, which the kernel hands on only where it is handled."""
    if not can_mount():
        pytest.skip("needs namespaces")

    def stop(started: Started) -> None:
        started.until("ready")
        time.sleep(1 if started.is_watched else 0)
        words = ["pgrep", "-P", str(started.pid)]
        (first,) = subprocess.run(words, capture_output=True, check=True).stdout.split()
        started.send(signal.SIGTERM, int(first))

    inner = f"exec $RUN $PYTHON $PROGRAMS/reloads.py 1 {int(signal.SIGTERM)}"
    script = f"exec unshare -pf --mount-proc bash -c '{inner}'"
    both = beside(script, meanwhile=stop).check()
    assert both.plain.out.endswith("after 1 signals\n"), both
