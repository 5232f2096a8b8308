"""The hosts that other tests use are hosts: what one has and does is not another's."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import hosts
import hosts_services
import psutil
import pytest

from .hosts_here import DEADLINE, HostsHere

_ASK = """\
import os, pathlib, socket, sys, time
here = pathlib.Path("/dev/shm/mine")
print(socket.gethostname(), here.exists(), sum(n.isdigit() for n in os.listdir("/proc")))
print(time.monotonic())
here.touch()
"""
_CALL = "import socket, sys; socket.create_connection((sys.argv[1], 9000), 3).recv(9)"
_SERVE = """\
import socket
listener = socket.create_server(("0.0.0.0", 9000))
print("listening", flush=True)
while True:
    listener.accept()[0].close()
"""


def _on(words: str) -> list[str]:
    return [sys.executable, "-u", "-c", words]


def test_each_has_its_own_name_processes_memory_and_clock(hosts_here: HostsHere) -> None:
    made = hosts_here.make(2)
    told = [host.run(_on(_ASK)).stdout.splitlines() for host in made]
    assert [lines[0].split()[:2] for lines in told] == [["n1", "False"], ["n2", "False"]]
    assert all(int(lines[0].split()[2]) < 5 for lines in told)
    assert float(told[1][1]) - float(told[0][1]) > 4000


@pytest.mark.parametrize("shared", [True, False])
def test_a_folder_is_shared_or_is_not(shared: bool, hosts_here: HostsHere) -> None:
    first, second = made = hosts_here.make(2, shared)
    first.run(["touch", made.folder / "here"])
    assert (second.run(["ls", made.folder]).stdout == "here\n") is shared
    assert (first.inside_folder / "here").exists()


def test_what_is_cut_off_does_not_answer_until_it_is_healed(hosts_here: HostsHere) -> None:
    first, second = made = hosts_here.make(2)
    serving = hosts_here.start(second, *_on(_SERVE))
    made.until(lambda: "listening" in serving.said(), "nobody listens")
    call = [*_on(_CALL), "n2"]
    assert first.run(call).returncode == 0
    made.cut(first, second)
    assert "timed out" in first.run(call).stderr
    made.heal()
    assert first.run(call).returncode == 0


def test_one_that_dies_takes_all_that_runs_in_it_along(hosts_here: HostsHere) -> None:
    first, second = made = hosts_here.make(2)
    asleep = hosts_here.start(second, "sleep", "300")
    made.until(lambda: list(second.processes().values()) == ["sleep 300"], "nobody sleeps")
    second.die()
    assert asleep.end() != 0
    assert first.run(["true"]).returncode == 0


def test_all_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    """Also if that is killed."""
    if why_not := hosts.missing():
        pytest.skip(why_not)
    script = tmp_path / "make.py"
    script.write_text(
        f"import sys, os; sys.path.insert(0, {str(Path(hosts_services.__file__).parent)!r})\n"
        "import hosts\nmade = hosts.Hosts(1)\nmade[0].start(['sleep', '300'])\n"
        "import time\n"
        "while not made[0].processes(): time.sleep(0.05)\n"
        "print(made[0].pid, *made[0].processes(), made.root)\nsys.stdout.flush()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with os.popen(f"{sys.executable} {script}") as said:
        first, inside, root = said.read().split()
    shutil.rmtree(root)
    there = []
    for pid in (first, inside):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended by now
            there.append(psutil.Process(int(pid)))
    assert not psutil.wait_procs(there, DEADLINE)[1]


def test_commands_are_started_by_ssh_and_by_slurm(hosts_here: HostsHere) -> None:
    if why_not := hosts_services.ssh_missing() or hosts_services.slurm_missing():
        pytest.skip(why_not)
    first, second = made = hosts_here.make(2)
    hosts_services.start_ssh(made)
    assert first.run(["ssh", "n2", "hostname"]).stdout == "n2\n"
    environ = hosts_services.start_slurm(made, [second])
    assert first.run(["srun", "hostname"], environ).stdout == "n2\n"
    assert [host.left() for host in made] == [[], []]
