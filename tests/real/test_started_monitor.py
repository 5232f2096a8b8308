"""A monitor is started from a process in whatever state: it holds nothing of it."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

DEADLINE = 60.0
WITHOUT = str(Path(__file__).with_name("without_syscalls.py"))
Start = Callable[..., subprocess.Popen[str]]

# A rank that reaches its monitor and says on descriptor 9 what it has open.
RANK = """
import importlib, os, runpy, signal, sys, threading, time
from dataclasses import replace
if importlib.util.find_spec("hangbisect") is None:
    runpy.run_path(sys.argv[1] + "/bisect/__main__.py", run_name="checkout")
from hangbisect.base import place
from hangbisect.rank import monitor_connection
exec(sys.argv[3])
try:
    found = monitor_connection.connect_to_monitor(replace(place.find_place({}), job=sys.argv[2]))
except OSError as error:
    os.write(9, f"without a watch: {error}".encode())
    os._exit(0)
parent, until = "", time.monotonic() + 30.0
while not parent and time.monotonic() < until:  # as it starts, it opens and closes files
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                words = file.read().split("\\0")
            if words[4:5] == ["monitor"] and sys.argv[2] in words[5]:
                held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
                with open(f"/proc/{pid}/stat") as file:
                    parent = file.read().rpartition(")")[2].split()[1]
        except OSError:
            continue
ours = sorted(d for d in (found.connection.fileno(), found.settings_pipe) if d < 3)
whose = "us" if int(parent) == os.getpid() else "not us"
os.write(9, f"watched, low {ours}, parent {whose}, ".encode())
os.write(9, f"holds {sorted(one for one in held if sys.argv[4] in one)}".encode())
"""


@pytest.fixture
def job() -> str:
    """The name of a job that is nowhere else on this machine."""
    return uuid.uuid4().hex[:12]


def run(
    tmp_path: Path, checkout: Path, job: str, before: str = "", shell: str = "", first: str = ""
) -> str:
    """Run a rank that executes `before` first; return what it said on descriptor 9."""
    rank = tmp_path / "rank.py"
    rank.write_text(RANK)
    script = f'exec 9>"$0" {shell}; shift; exec {first} "$@"'
    command = [sys.executable, str(rank), str(checkout), job, before, str(tmp_path)]
    said = tmp_path / "said"
    done = subprocess.run(
        ["bash", "-c", script, str(said), "-", *command],
        timeout=DEADLINE,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return said.read_text()


WATCHED = "watched, low [], parent not us, holds []"


def test_it_keeps_no_file_of_the_rank(tmp_path: Path, checkout: Path, job: str) -> None:
    opened = f"f = open({str(tmp_path / 'f')!r}, 'w'); os.dup2(f.fileno(), 900)"
    assert run(tmp_path, checkout, job, opened) == WATCHED


def test_nor_where_descriptors_cannot_be_closed_by_range(
    tmp_path: Path, checkout: Path, job: str
) -> None:
    opened = f"f = open({str(tmp_path / 'f')!r}, 'w'); os.dup2(f.fileno(), 900)"
    first = f"{sys.executable} {WITHOUT} close_range"
    assert run(tmp_path, checkout, job, opened, "; ulimit -n $(ulimit -Hn)", first) == WATCHED


def test_a_rank_without_stdin_and_stdout_gets_none_from_us(
    tmp_path: Path, checkout: Path, job: str
) -> None:
    assert run(tmp_path, checkout, job, shell="<&- >&-") == WATCHED


def test_a_rank_with_more_than_1024_descriptors_is_watched(
    tmp_path: Path, checkout: Path, job: str
) -> None:
    many = "held = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]"
    assert run(tmp_path, checkout, job, many, "; ulimit -n $(ulimit -Hn)") == WATCHED


@pytest.mark.parametrize(
    "handling",
    ["signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "signal.signal(signal.SIGCHLD, reap)"],
)
def test_a_rank_whose_children_are_reaped_for_it_is_watched(
    tmp_path: Path, checkout: Path, job: str, handling: str
) -> None:
    reap = (
        "def reap(*_):\n"
        "    try:\n"
        "        os.waitpid(-1, os.WNOHANG)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    assert run(tmp_path, checkout, job, reap + handling) == WATCHED


def test_where_no_descriptor_is_left_the_rank_goes_on_without(
    tmp_path: Path, checkout: Path, job: str
) -> None:
    said = run(
        tmp_path,
        checkout,
        job,
        "import resource, json, fcntl\nresource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))",
    )
    assert said.startswith("without a watch:")
    assert not list(Path("/dev/shm").glob(f"hangbisect-{job}*"))


def test_a_function_of_the_job_that_hangs_at_each_fork_is_not_waited_for(
    tmp_path: Path, checkout: Path, job: str
) -> None:
    hangs = (
        "monitor_connection.LOCK_LIMIT = 1.0\n"
        "os.register_at_fork(after_in_child=lambda: time.sleep(3600))\n"
    )
    said = run(tmp_path, checkout, job, hangs)
    assert said == "without a watch: the monitor did not start"
    assert not list(Path("/dev/shm").glob(f"hangbisect-{job}*"))


def test_no_warning_of_a_fork_with_threads_is_printed(
    tmp_path: Path, checkout: Path, job: str
) -> None:
    before = (
        "import warnings; warnings.simplefilter('always', DeprecationWarning)\n"
        "threading.Thread(target=time.sleep, args=(2,)).start()"
    )
    assert run(tmp_path, checkout, job, before) == WATCHED
