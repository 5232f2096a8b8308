"""Another local user gets nothing: with a real second user, who is there first or comes between.

As that user programs are run by setpriv, so these tests need root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hangbisect.base.events import Places
from hangbisect.evidence.external_tools import read_error_file, read_recorder_dump
from hangbisect.rank.our_folders import bases
from hangbisect.rank.walk import _use_temporary_folder

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can be another user, by setpriv",
)

DEADLINE = 60.0
OTHER = 1234
AS_OTHER = ("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups")
Start = Callable[..., subprocess.Popen[str]]

PACKAGE = """
import importlib, os, runpy, sys, time
if importlib.util.find_spec("hangbisect") is None:
    runpy.run_path(sys.argv[1] + "/bisect/__main__.py", run_name="checkout")
"""
# A rank that reaches its monitor, without being one of a real job.
REACH = (
    PACKAGE
    + """
from hangbisect.base import place
from hangbisect.rank import monitor_connection
from dataclasses import replace
here = replace(place.find_place({}), job=sys.argv[2])
try:
    found = monitor_connection.connect_to_monitor(here)
except OSError as error:
    print("without a watch:", error)
else:
    who = "ours" if found.settings_pipe is not None else "there"
    print("watched", found.folder, os.stat(found.folder).st_uid, who, flush=True)
    sys.stdin.readline()
"""
)


@pytest.fixture
def job() -> Iterator[str]:
    """The name of a job that is nowhere else on this machine; what was made for it is removed."""
    name = uuid.uuid4().hex[:12]
    yield name
    for base in bases():
        for made in Path(base).glob(f"hangbisect-{name}*"):
            if made.is_dir() and not made.is_symlink():
                shutil.rmtree(made, ignore_errors=True)
            else:
                made.unlink(missing_ok=True)


def python(start: Start, program: str, *words: str, **options: object) -> subprocess.Popen[str]:
    """Start a program that goes on until its stdin is written to or closed."""
    options.setdefault("stdin", subprocess.PIPE)
    return start(sys.executable, "-c", program, *words, **options)


def as_other(program: str, *words: str) -> str:
    """Run a program as another user to its end; return what it printed."""
    command = (*AS_OTHER, sys.executable, "-I", "-S", "-c", program, *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_words(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_a_lock_that_another_user_holds_is_not_waited_for(
    start: Start, checkout: Path, job: str
) -> None:
    # It was a name in the abstract namespace once, which anybody may bind.
    hold = (
        "import socket, sys, time\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"s.bind('\\0hangbisect-0-{job}')\n"
        "print('held', flush=True)\n"
        "time.sleep(3600)\n"
    )
    other = start(*AS_OTHER, sys.executable, "-I", "-S", "-c", hold, cwd="/")
    assert first_words(other) == ["held"]
    as_other(f"import os; os.mkdir('/dev/shm/hangbisect-{job}.lock', 0o777)")
    rank = python(start, REACH, str(checkout), job)
    assert first_words(rank)[:3] == ["watched", f"/dev/shm/hangbisect-{job}", "0"]
    rank.communicate("\n", timeout=DEADLINE)


def test_a_folder_that_another_user_has_made_is_not_used(
    start: Start, checkout: Path, job: str
) -> None:
    as_other(f"import os; os.umask(0); os.mkdir('/dev/shm/hangbisect-{job}', 0o777)")
    rank = python(start, REACH, str(checkout), job, env=without_folders())
    assert first_words(rank)[:3] == ["watched", f"/tmp/hangbisect-{job}", "0"]
    rank.communicate("\n", timeout=DEADLINE)
    assert os.listdir(f"/dev/shm/hangbisect-{job}") == []


def test_where_another_user_has_all_names_the_job_starts_without_a_watch(
    start: Start, checkout: Path, job: str
) -> None:
    for base in ("/dev/shm", "/tmp"):
        as_other(f"import os; os.mkdir('{base}/hangbisect-{job}.lock', 0o777)")
    rank = python(start, REACH, str(checkout), job, env=without_folders())
    said, complaint = rank.communicate("\n", timeout=DEADLINE)
    assert said.startswith("without a watch:")
    assert complaint == ""


def test_a_link_to_a_folder_of_ours_is_not_followed(
    start: Start, checkout: Path, job: str, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    as_other(f"import os; os.symlink({str(private)!r}, '/dev/shm/hangbisect-{job}')")
    rank = python(start, REACH, str(checkout), job, env=without_folders())
    assert first_words(rank)[:3] == ["watched", f"/tmp/hangbisect-{job}", "0"]
    rank.communicate("\n", timeout=DEADLINE)
    assert list(private.iterdir()) == []


def test_ranks_that_start_at_once_share_one_monitor(start: Start, checkout: Path, job: str) -> None:
    ranks = [python(start, REACH, str(checkout), job) for _ in range(6)]
    said = [first_words(rank) for rank in ranks]
    assert [words[:3] for words in said] == [["watched", f"/dev/shm/hangbisect-{job}", "0"]] * 6
    assert sorted(words[3] for words in said) == ["ours", *["there"] * 5]
    # Two monitors would both stay: each waits for the settings of who started it.
    until = time.monotonic() + DEADLINE / 3
    while len(found := monitors_of(job)) != 1 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(found) == 1, found
    assert not Path(f"/dev/shm/hangbisect-{job}.lock").exists()
    for rank in ranks:
        rank.communicate("\n", timeout=DEADLINE)


def test_one_rank_at_a_time_has_the_lock(
    start: Start, checkout: Path, job: str, tmp_path: Path
) -> None:
    # Each removes the folder of the lock when it leaves, while others are about to open it.
    enter = (
        PACKAGE + "from hangbisect.rank import monitor_connection\n"
        f"monitor_connection.LOCK_LIMIT, monitor_connection.PAUSE = {DEADLINE}, 0.0\n"
        "for _ in range(300):\n"
        "    with monitor_connection._hold_lock(sys.argv[2]):\n"
        "        os.close(os.open(sys.argv[3], os.O_CREAT | os.O_EXCL))\n"
        "        os.unlink(sys.argv[3])\n"
        "print('alone each time')\n"
    )
    mark = str(tmp_path / "mark")
    ranks = [python(start, enter, str(checkout), job, mark) for _ in range(6)]
    said = [rank.communicate(timeout=2 * DEADLINE)[0] for rank in ranks]
    assert said == ["alone each time\n"] * 6


def test_a_lock_whose_holder_was_killed_is_free(start: Start, checkout: Path, job: str) -> None:
    hold = (
        PACKAGE + "from hangbisect.rank.monitor_connection import _hold_lock\n"
        "with _hold_lock(sys.argv[2]):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(3600)\n"
    )
    holder = python(start, hold, str(checkout), job)
    assert first_words(holder) == ["held"]
    holder.send_signal(signal.SIGKILL)
    holder.wait(DEADLINE)
    rank = python(start, REACH, str(checkout), job)
    assert first_words(rank)[:3] == ["watched", f"/dev/shm/hangbisect-{job}", "0"]
    rank.communicate("\n", timeout=DEADLINE)


def without_folders() -> dict[str, str]:
    """Our environment, without a TMPDIR or an XDG_RUNTIME_DIR of its own."""
    return {k: v for k, v in os.environ.items() if k not in ("TMPDIR", "XDG_RUNTIME_DIR")}


def monitors_of(job: str) -> list[str]:
    """Return what /proc says of each of its monitors: pid, parent, state, program, threads."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[4:5] == ["monitor"] and f"hangbisect-{job}" in words[5]:
                shown = process.pid, process.ppid(), process.status(), process.exe()
                found.append(f"{shown} {process.num_threads()} threads")
    return found


# ---- the run folder ------------------------------------------------------------------------------

PUBLISH = (
    PACKAGE
    + """
import asyncio, shutil
from pathlib import Path
from hangbisect.monitor.run_folder import RunFolder
run = RunFolder(None, Path(sys.argv[2]))
run.write("verdict.json", "secret of ours")
run.write("stacks/rank-0.txt", "secret of ours")
done = asyncio.run(run.publish(30.0, first=True))
print("published" if done else run.trouble)
run.close()
if not done:  # what has no copy stays
    shutil.rmtree(run.stage)
"""
)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder in which everybody may write, as a group's that shares its runs."""
    made = Path(f"/tmp/shared-{uuid.uuid4().hex[:12]}")
    made.mkdir()
    made.chmod(0o777)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file of ours that another user wants to have overwritten."""
    file = tmp_path / "private"
    file.write_text("precious")
    return file


def publish(start: Start, checkout: Path, folder: Path) -> str:
    said, complaint = python(start, PUBLISH, str(checkout), str(folder)).communicate(
        timeout=DEADLINE
    )
    assert complaint == ""
    return said


def test_a_link_in_place_of_a_file_of_the_run_is_replaced(
    start: Start, checkout: Path, open_folder: Path, private: Path
) -> None:
    as_other(
        "import os, sys\n"
        "run = sys.argv[1] + '/run'\n"
        "os.umask(0); os.mkdir(run, 0o777)\n"
        "for name in ('verdict.json', '.verdict.json.new'):\n"
        "    os.symlink(sys.argv[2], run + '/' + name)\n",
        *map(str, (open_folder, private)),
    )
    assert publish(start, checkout, open_folder / "run") == "published\n"
    assert private.read_text() == "precious"
    written = open_folder / "run" / "verdict.json"
    assert not written.is_symlink()
    assert written.read_text() == "secret of ours"
    read = (
        "import sys\n"
        "try:\n"
        "    print(open(sys.argv[1]).read())\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
    )
    assert as_other(read, str(written)) == "13\n"


@pytest.mark.parametrize("name", ["run", "run/stacks"])
def test_a_link_in_place_of_a_folder_of_the_run_is_not_followed(
    start: Start, checkout: Path, open_folder: Path, private: Path, name: str
) -> None:
    ours = private.parent / "ours"
    ours.mkdir()
    (ours / "rank-0.txt").write_text("precious")
    (ours / "verdict.json").write_text("precious")
    as_other(
        "import os, sys\n"
        "os.umask(0)\n"
        "if '/' in sys.argv[1]:\n"
        "    os.mkdir(sys.argv[2] + '/run', 0o777)\n"
        "os.symlink(sys.argv[3], sys.argv[2] + '/' + sys.argv[1])\n",
        *map(str, (name, open_folder, ours)),
    )
    assert publish(start, checkout, open_folder / "run") != "published\n"
    assert sorted(path.name for path in ours.iterdir()) == ["rank-0.txt", "verdict.json"]
    assert {path.read_text() for path in ours.iterdir()} == {"precious"}


def test_a_hard_link_to_a_file_of_ours_is_not_written_to(
    start: Start, checkout: Path, open_folder: Path
) -> None:
    precious = open_folder / "precious"  # in its folder somebody may link it
    precious.write_text("precious")
    (open_folder / "run").mkdir()
    os.link(precious, open_folder / "run" / "verdict.json")
    assert publish(start, checkout, open_folder / "run") == "published\n"
    assert precious.read_text() == "precious"


def test_the_folder_of_another_user_for_runs_is_passed_over(tmp_path: Path, checkout: Path) -> None:
    from hangbisect.monitor.job import _find_folder_of_runs

    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    name = tmp_path / f"hangbisect-runs-{os.getuid()}"
    as_other("import os, sys; os.umask(0); os.mkdir(sys.argv[1], 0o777)", str(name))
    found = Path(_find_folder_of_runs(str(tmp_path)))
    assert found != name
    assert (found.stat().st_uid, found.stat().st_mode & 0o777) == (os.getuid(), 0o700)
    with contextlib.suppress(OSError):  # runs of others lie there
        found.rmdir()


def test_a_lock_that_another_user_put_there_is_not_waited_for(
    start: Start, checkout: Path, open_folder: Path
) -> None:
    as_other(
        "import os, sys\n"
        "os.umask(0); os.mkdir(sys.argv[1], 0o777); os.mkfifo(sys.argv[1] + '/.lock')\n",
        str(open_folder / "run"),
    )
    assert publish(start, checkout, open_folder / "run") == "published\n"
    assert (open_folder / "run-2" / "verdict.json").exists()


# ---- what other tools wrote ----------------------------------------------------------------------


def test_a_dump_that_another_user_put_in_tmp_is_no_evidence(tmp_path: Path) -> None:
    prefix = f"/tmp/nccl_trace_of_{uuid.uuid4().hex[:12]}_"
    environment = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix}
    content = json.dumps({"entries": []})
    write = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    try:
        as_other(write, f"{prefix}0", content)
        assert read_recorder_dump(0, environment, since=0.0) is None
        Path(f"{prefix}1").write_text(content)
        assert read_recorder_dump(1, environment, since=0.0) is not None
        as_other("import os, sys; os.symlink(sys.argv[1], sys.argv[2])", f"{prefix}1", f"{prefix}2")
        assert read_recorder_dump(2, environment, since=0.0) is None
    finally:
        for number in range(3):
            Path(f"{prefix}{number}").unlink(missing_ok=True)


def test_an_error_file_of_another_user_is_no_evidence() -> None:
    path = Path(f"/tmp/error-{uuid.uuid4().hex[:12]}.json")
    content = json.dumps({"message": "RuntimeError: made up"})
    try:
        as_other("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", str(path), content)
        assert read_error_file(str(path)) is None
        os.chown(path, os.getuid(), -1)
        assert read_error_file(str(path)) is not None
    finally:
        path.unlink(missing_ok=True)


# ---- the folder for temporary files --------------------------------------------------------------


def test_a_rank_takes_no_folder_of_another_user_for_its_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = Path(f"/tmp/hangbisect-{uuid.uuid4().hex[:12]}.tmp")
    as_other("import os, sys; os.umask(0); os.mkdir(sys.argv[1], 0o777)", str(folder))
    ours = tmp_path / "ours"
    ours.mkdir(0o700)
    monkeypatch.setenv("TMPDIR", "as it was")
    context: Any = SimpleNamespace(step=SimpleNamespace(number=1))
    for told in (folder, tmp_path / "nobody made it", ""):
        link: Any = SimpleNamespace(places=Places(temporary=str(told), run_dir=""))
        _use_temporary_folder(context, link)
        assert os.environ["TMPDIR"] == "as it was"
    link = SimpleNamespace(places=Places(temporary=str(ours)))
    _use_temporary_folder(context, link)
    assert os.environ["TMPDIR"] == str(ours)
    folder.rmdir()
