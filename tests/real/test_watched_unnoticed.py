"""What a script of the user's own could notice of the watch: only what is listed here."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from .watched_scripts import ended, told, written

# A time limit by SIGALRM: it comes while a line of ours waits for a reader, or while the script
# itself goes on.
TIME_LIMIT = """
import argparse, contextlib, os, signal, time
import torch

class Late(Exception): pass
class TooLate(TimeoutError): pass

reader, writer = os.pipe()
os.set_blocking(writer, False)
with contextlib.suppress(BlockingIOError):
    while True: os.write(writer, b"x" * 4096)
os.set_blocking(writer, True)
kept = os.dup(2)
for kind in (Late, TooLate):
    def late(number, frame):
        raise kind
    signal.signal(signal.SIGALRM, late)
    os.dup2(writer, 2)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        argparse.ArgumentParser().parse_args([])
        time.sleep(5)
        said = "no exception"
    except kind as error:
        said = f"{kind.__name__} raised"
    os.dup2(kept, 2)
    print(said)
"""
# As many descriptors as a loader of many shards has, before the first import.
DESCRIPTORS = """
import os, resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
import torch
torch.compile
import argparse
argparse.ArgumentParser().parse_args([])
print(len(opened))
"""
# A watchdog of the script's own, by the one timer that faulthandler has, and steps after it.
WATCHDOG = """
import argparse, sys, time
import torch
for _ in range(20):  # until the monitor has said that it cannot look
    argparse.ArgumentParser().parse_args([])
    time.sleep(0.2)
print([type(one).__name__ for one in sys.meta_path if "Timer" in type(one).__name__])
{forks}
import faulthandler
faulthandler.dump_traceback_later(3, exit=True)
for _ in range(200):
    argparse.ArgumentParser().parse_args([])
    time.sleep(0.2)
print("it did not bite")
"""
FORKS = """
import os, sys
class Slow(argparse.Action):
    def __call__(self, *args, **more):  # in a step: our own timer runs
        child = os.fork()
        if child == 0:
            sys.exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
parser = argparse.ArgumentParser()
parser.add_argument("--slow", action=Slow)
parser.parse_args(["--slow", "1"])
"""
SEEN = """
import os, sys

def seen():
    import gc, locale, logging, signal, threading, warnings
    inherited = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                inherited.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return {
        "environment": {n: v for n, v in os.environ.items() if n not in ("HOME", "PORT")},
        "path": sys.path, "flags": str(sys.flags), "argv": sys.argv, "folder": os.getcwd(),
        "umask": os.umask(os.umask(0o22)) or os.umask(0o22), "inherited": inherited,
        "finders": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
        "hooks": [str(h) for h in sys.path_hooks],
        "threads": [t.name for t in threading.enumerate()],
        "tasks": len(os.listdir("/proc/self/task")),
        "filters": len(warnings.filters), "handlers": [str(h) for h in logging.root.handlers],
        "level": logging.root.level, "loggers": sorted(logging.root.manager.loggerDict),
        "excepthook": sys.excepthook is sys.__excepthook__,
        "others": [sys.unraisablehook is sys.__unraisablehook__,
                   threading.excepthook is threading.__excepthook__,
                   sys.displayhook is sys.__displayhook__, sys.gettrace(), sys.getprofile()],
        "signals": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
        "wakeup": signal.set_wakeup_fd(-1), "timer": signal.getitimer(signal.ITIMER_REAL),
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "locale": locale.setlocale(locale.LC_ALL), "switch": sys.getswitchinterval(),
        "limits": sys.getrecursionlimit(), "ours": sorted(
            n for n in sys.modules if n in ("json", "socket", "ctypes", "subprocess", "traceback",
                                            "faulthandler", "asyncio", "tempfile", "inspect")),
        "child": os.popen("env | grep -c TMPDIR").read(),
    }

moments = {"first": seen()}
import torch
moments["imported"] = seen()
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(8):
    net(torch.ones(2)).sum().backward()
    optimizer.step()
moments["after"] = seen()
import re
print(re.sub(" at 0x[0-9a-f]+", "", repr(moments)).replace(os.getcwd(), "HERE"))
"""
# What differs, and is listed in docs/how-it-works.md.
ALLOWED = {
    "first": {"environment", "finders", "ours"},
    "imported": {"environment", "finders", "ours", "excepthook"},
    "after": {"environment", "ours", "excepthook"},
}


def test_a_time_limit_of_the_script_comes_while_our_code_runs(tmp_path: Path) -> None:
    done = ended(written(TIME_LIMIT, tmp_path), tmp_path / "run")
    assert (done.status, done.out) == (0, "Late raised\nTooLate raised\n"), done.err
    assert told(tmp_path / "run", "hello")


def test_a_watchdog_of_the_script_bites_where_py_spy_may_not_look(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    base: Any = sys
    without = {"PATH": f"{programs}:/usr/bin:/bin", "HANGBISECT_PYTHON": base._base_executable}
    script = written(WATCHDOG.format(forks=FORKS), tmp_path)
    done = ended(script, tmp_path / "run", **without)
    assert (done.status, done.out) == (1, "['StackTimer']\nchild 7\n"), done.err
    assert "Timeout (0:00:03)!" in done.err
    assert told(tmp_path / "run", "hello")


def test_a_thousand_descriptors_keep_no_step_from_being_told(tmp_path: Path) -> None:
    done = ended(written(DESCRIPTORS, tmp_path), tmp_path / "run")
    assert (done.status, done.out) == (0, "1100\n"), done.err
    assert "Going on without the watch" not in done.err
    assert {"import_torch", "arguments"} <= {one["step"] for one in told(tmp_path / "run", "begin")}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What a script sees of itself, without us and with us, at each moment."""
    found = []
    for watched in (False, True):
        folder = tmp_path_factory.mktemp("seen")
        done = ended(written(SEEN, folder), folder / "run", watched)
        assert done.status == 0, done.err
        found.append(ast.literal_eval(done.out))
    return found


@pytest.mark.parametrize("moment", ALLOWED)
def test_a_script_sees_of_us_what_is_listed(both: list[dict[str, Any]], moment: str) -> None:
    plain, watched = (one[moment] for one in both)
    differ = {name for name in plain if plain[name] != watched[name]}
    assert differ <= ALLOWED[moment], {n: (plain[n], watched[n]) for n in differ}
    added = {n for n, v in watched["environment"].items() if plain["environment"].get(n) != v}
    assert {name for name in added if not name.startswith("HANGBISECT_")} <= {"PYTHONPATH", "PWD"}
    assert set(plain["environment"]) <= set(watched["environment"])
    assert set(watched["finders"]) - set(plain["finders"]) <= {"_Finder"}
