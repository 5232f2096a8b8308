"""Jobs on several hosts of which one cannot write in the run folder: its disk is full, read-only,
or does not answer. The verdict comes all the same, and one sentence says what became of the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hosts import Host, Hosts, program
from joined_hosts import MEETS, environ_of

from .hosts_here import DEADLINE, HostsHere, Started, verdicts
from .test_joined_nodes import end_all, headings, start
from .test_several_hosts import HANGBISECT, PYTHON, shown

SILENT_DISK = 16  # MiB
COPIES = "/monitor/copy_run.py"


class Folder:
    """The run folder of one host, which is to fail."""

    def __init__(self, host: Host) -> None:
        self._host, self._is_frozen = host, False
        self.path = f"{host._made.folder}/run"
        (host.inside_folder / "run").mkdir(exist_ok=True)

    def do(self, *words: object) -> None:
        done = self._host.run(words, folder="/")
        assert done.returncode == 0, done.stderr

    def fail(self, how: str) -> None:
        """Let it fail from now on."""
        if how == "small":  # from the start
            self.do("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", self.path)
        elif how == "full":
            self.do("sh", "-c", f"cat /dev/zero >{self.path}/filler; [ -s {self.path}/filler ]")
        elif how == "read-only":
            self.do("mount", "-o", "remount,ro,bind", self.path)
        else:  # whoever writes waits in the kernel
            self.do("fsfreeze", "--freeze", self.path)
            self._is_frozen = True

    def prepare(self, how: str) -> None:
        """Have it on a disk that can fail so."""
        if how == "full":
            self.do("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", self.path)
        elif how == "read-only":
            self.do("mount", "--bind", self.path, self.path)
        elif how == "silent":
            make = f"truncate -s {SILENT_DISK}M /tmp/disk && mkfs.ext4 -q /tmp/disk"
            self.do("sh", "-c", f"{make} && mount -o loop /tmp/disk {self.path}")

    def heal(self) -> None:
        """Let go whoever waits for it."""
        if self._is_frozen:
            self._host.run(["fsfreeze", "--unfreeze", self.path], folder="/")
            self._host.run(["umount", "--lazy", self.path], folder="/")
            self._is_frozen = False


@contextlib.contextmanager
def failing(host: Host, how: str) -> Iterator[Folder]:
    """A run folder that can fail in this way; the test is skipped where it cannot be made."""
    needed = ("mkfs.ext4", "fsfreeze", "truncate") if how == "silent" else ()
    if absent := [name for name in needed if program(name) is None]:
        pytest.skip(f"no {', '.join(absent)} here")
    folder = Folder(host)
    folder.prepare(how)
    try:
        yield folder
    finally:
        folder.heal()


def about_folder(one: Started) -> list[str]:
    """Return what a host has said of its run folder, and of files that are elsewhere."""
    words = ("The run folder", "cannot be written", "files stay", "files of a monitor")
    return [line for line in one.said().splitlines() if any(word in line for word in words)]


def until_told_once(hosts: Hosts, started: list[Started]) -> None:
    hosts.until(lambda: len(headings(started[0])) == 1, "no verdict", DEADLINE)
    hosts.until(lambda: "verdict comes from n1" in started[1].said(), "not told", DEADLINE)


def until_nobody_speaks(hosts: Hosts) -> None:
    """Wait until all have ended but who waits for the disk, in the kernel."""

    def speaks() -> bool:
        return any(COPIES not in words for host in hosts for words in host.processes().values())

    hosts.until(lambda: not speaks(), "they run on", DEADLINE)


@pytest.mark.parametrize(
    ("how", "number", "is_late"),
    [
        ("small", 1, False),
        ("full", 0, True),
        ("full", 1, True),
        ("read-only", 1, False),
        ("silent", 0, True),
        ("silent", 1, True),
    ],
)
def test_a_verdict_on_all_hosts_comes_though_one_cannot_write_it(
    how: str, number: int, is_late: bool, hosts_here: HostsHere
) -> None:
    made = hosts_here.make(2, shared=False)
    with failing(made[number], how) as folder:
        if not is_late:
            folder.fail(how)
        started = start(hosts_here, made, "1", "fifo", "1000")
        if is_late:
            made.until(lambda: "2 nodes are joined" in started[0].said(), "not joined", DEADLINE)
            folder.fail(how)
        until_told_once(made, started)
        assert "culprit   rank 1 n2 " in started[0].said(), shown(started)
        assert headings(started[1]) == [], shown(started)
        end_all(started)
        until_nobody_speaks(made)
        told = [len(about_folder(one)) for one in started]
        assert told == [int(n == number) for n in range(2)], shown(started)
        other = verdicts(made[1 - number].inside_folder / "run")
        assert [one["ranks"]["culprit"] for one in other.values()] == [[1]]


def test_a_healthy_job_ends_well_though_a_host_cannot_write_and_that_is_said_once(
    hosts_here: HostsHere,
) -> None:
    made = hosts_here.make(2, shared=False)
    with failing(made[1], "silent") as folder:
        started = start(hosts_here, made, "-1", "none", "60", on_hang="end")
        made.until(lambda: "2 nodes are joined" in started[0].said(), "not joined", DEADLINE)
        folder.fail("silent")
        assert [one.end() for one in started] == [0, 0], shown(started)
        assert "OK  2 ranks on 2 hosts" in started[0].said(), shown(started)
        until_nobody_speaks(made)
        assert len(about_folder(started[1])) == 1, shown(started)


def test_without_the_token_of_the_shared_folder_each_host_judges_and_the_first_shows_what_all_tell(
    hosts_here: HostsHere,
) -> None:
    """The host of rank 1 cannot read it: nothing proves that the two are of one job."""
    made = hosts_here.make(2)
    with failing(made[1], "small") as folder:
        folder.fail("small")
        started = []
        for number, host in enumerate(made.all):
            (made.folder / "meets.py").write_text(MEETS)
            run = [HANGBISECT, "run", "--stall", "4", "--run-dir", "run", "--", PYTHON, "meets.py"]
            environ = environ_of(number, 2, HANGBISECT_TOKEN="")
            started.append(hosts_here.start(host, *run, "1", "fifo", "1000", env=environ))
        made.until(lambda: len(headings(started[1])) == 1, "no verdict", DEADLINE)
        assert "culprit   rank 1 n2 " in started[1].said(), shown(started)
        assert len(about_folder(started[1])) == 1, shown(started)
        made.until(lambda: "culprit   rank 1 n2 " in started[0].said(), "not shown", DEADLINE)
        assert len(headings(started[0])) == 1, shown(started)
        assert "No token joins the nodes" in started[0].said(), shown(started)
        made.until(lambda: "not proved to be of this job" in started[0].said(), "no note", 10.0)
        end_all(started)
