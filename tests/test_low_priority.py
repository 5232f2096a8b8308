"""A module is imported by a thread that gives way, and the process stays as it was."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hangbisect.base.loading import import_at_low_priority


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "says_nice.py").write_text("import os\nNICE = os.nice(0)\n")
    (tmp_path / "raises.py").write_text("raise OSError('the disk is gone')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("says_nice", "raises"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_it_is_imported_at_a_nice_value_of_its_own() -> None:
    before = os.nice(0)
    assert min(before + 10, 19) == import_at_low_priority("says_nice").NICE
    assert os.nice(0) == before


def test_what_an_import_raises_is_raised() -> None:
    with pytest.raises(OSError, match="the disk is gone"):
        import_at_low_priority("raises")


@pytest.mark.parametrize("way", ["none can be started", "it ends before its first step"])
def test_without_a_thread_it_is_imported_here(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        if way.startswith("none"):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", start)
    assert os.nice(0) == import_at_low_priority("says_nice").NICE


def test_its_session_gives_way_meanwhile(tmp_path: Path) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("sessions are no groups of the scheduler here")
    (tmp_path / "says_group.py").write_text(
        "GROUP = open('/proc/self/autogroup').read().split()[-1]\n"
    )
    program = (
        "import os; os.setsid()\n"  # its own session, as a monitor has
        "from hangbisect.base.loading import import_at_low_priority\n"
        "found = import_at_low_priority('says_group').GROUP\n"
        "print(found, open('/proc/self/autogroup').read().split()[-1])\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE)
    assert ran.communicate(timeout=60)[0].split() == [b"19", b"0"]


def test_a_session_in_which_several_load_at_once_has_its_priority_back(tmp_path: Path) -> None:
    """The monitor of several programs, each of which is a job of its own, loads for each."""
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("sessions are no groups of the scheduler here")
    for number in range(3):  # each is there once all have begun
        (tmp_path / f"takes_{number}.py").write_text(
            "import pathlib, time\n"
            "here, end = pathlib.Path(__file__).parent, time.monotonic() + 30\n"
            f"(here / 'begun.{number}').touch()\n"
            "while len([*here.glob('begun.*')]) < 3 and time.monotonic() < end:\n"
            "    time.sleep(0.05)\n"
        )
    program = (
        "import os, threading; os.setsid()\n"
        "from hangbisect.base.loading import import_at_low_priority\n"
        "group = lambda: open('/proc/self/autogroup').read().split()[-1]\n"
        "names = [f'takes_{n}' for n in range(3)]\n"
        "threads = [threading.Thread(target=import_at_low_priority, args=[n]) for n in names]\n"
        "for one in threads: one.start()\n"
        "for one in threads: one.join()\n"
        "print(group())\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE)
    assert ran.communicate(timeout=60)[0].split() == [b"0"]
