"""Where something is used up or refused, less is watched; the program is as without us."""

from __future__ import annotations

import json
import os
import re
import shutil
from functools import partial

import jobs
import pytest

from .side_by_side import Beside, Both, Meanwhile, Run, Started, at_once, can_mount

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="another user, or a mount: root alone")
needs_mounts = pytest.mark.skipif(not can_mount(), reason="no mount namespace may be made here")
HANG_STALL = ("--stall", "3")
USER = 54321  # has no other processes, which count too
_SAID = re.compile(r"\b(lost|cannot|could not|not (be )?(kept|written)|no space|is full)\b", re.I)


@needs_root
def test_processes_and_threads_are_used_up(beside: Beside) -> None:
    """With two, there is room for the command and for the program. It gets it."""

    def run(user: int, limit: int, program: str) -> Both:
        script = f"ulimit -u {limit}; exec $RUN $PYTHON $PROGRAMS/ends_with.py 5 7 {program}"
        return beside(script, watch=HANG_STALL, user=user).check()

    # The kernel counts those of one user together.
    limits = enumerate([(2, ""), (4, ""), (2, "rank"), (3, "rank"), (4, "rank"), (6, "rank")])
    for both in at_once(*(partial(run, USER + number, *limit) for number, limit in limits)):
        assert both.plain.status == 7


def test_descriptors_are_used_up(beside: Beside) -> None:
    def run(limit: int) -> Both:
        script = f"ulimit -n {limit}; exec $RUN $PYTHON $PROGRAMS/ends_with.py 5 7"
        return beside(script, watch=HANG_STALL).check()

    for both in at_once(*(partial(run, limit) for limit in (6, 9, 12, 16, 24))):
        assert both.plain.status == 7


@pytest.mark.parametrize(("limit", "program"), [(20, "ends_with.py 6 0 rank"), (28, "tiny.py 6")])
def test_a_watch_that_fails_for_want_of_descriptors_ends_nothing_and_says_so_once(
    beside: Beside, limit: int, program: str
) -> None:
    """Eight ranks that stand still, and eight that train."""
    script = f"ulimit -n {limit}; $RUN bash $PROGRAMS/ranks.sh 8 $PYTHON $PROGRAMS/{program}"
    # With so few the files of the run stay where they could be written: its lines say where.
    stays = "hangbisect" if limit == 20 else ""
    both = beside(script, watch=("--on-hang", "end", "--stall", "4"), may_stay=stays).check()
    assert len(both.plain.out.splitlines()) == 8
    assert both.watched.err.count("short of descriptors") <= 2, both  # said; files that stay
    assert "HANG" not in both.watched.err, both


def _still_watched(started: Started) -> None:
    """Wait until it is said that a rank that does nothing is looked at, then let it end."""
    started.until("waits")
    if started.is_watched:
        started.until_true(lambda: "looking" in started.errors(), "looking")
        assert "\nOK " not in started.errors()
    started.enough()


def test_no_pidfd_is_no_end_of_a_rank(beside: Beside) -> None:
    """Profiles of containers (EPERM), and kernels before 5.3 or gVisor (ENOSYS)."""

    def run(refused: str) -> Both:
        script = f"$PYTHON $PROGRAMS/without.py {refused} $RUN $PYTHON $PROGRAMS/enough.py"
        return beside(script, watch=HANG_STALL, meanwhile=_still_watched).check()

    refused = ("pidfd_open", "pidfd_open,close_range,ptrace", "ENOSYS:pidfd_open")
    for both in at_once(*(partial(run, names) for names in refused)):
        assert both.watched.verdict.get("outcome") == "ok", both
        lines = (both.watched.folder / "run" / "events.jsonl").read_text().splitlines()
        ends = [event for event in map(json.loads, lines) if event["t"] == "ended"]
        assert {event["status"] for event in ends} <= {0, None}, both


def test_no_pidfd_is_no_end_of_a_rank_that_watches_itself(beside: Beside) -> None:
    script = (
        "$PYTHON $PROGRAMS/without.py pidfd_open $PYTHON -m bisect watch --run-dir run --stall 3 "
        "$PROGRAMS/enough.py; echo $?; "
        # The monitor writes it once the process is gone.
        "for n in $(seq 300); do test -s run/verdict.json && break; sleep 0.3; done"
    )
    run = beside.watched(script, meanwhile=_still_watched, may_stay="^cwd/run$")
    assert (run.status, run.out) == (0, "waits\ndone\n0\n"), run


FULL = (
    "mount -t tmpfs -o size=16k t /dev/shm && dd if=/dev/zero of=/dev/shm/full bs=4k "
    "count={pages} 2>/dev/null; "
)


@needs_mounts
@pytest.mark.parametrize("everywhere", [False, True], ids=["shm", "everywhere"])
def test_a_full_stage_loses_no_verdict(beside: Beside, everywhere: bool) -> None:
    def run(pages: int) -> None:
        fill = FULL.format(pages=pages)
        if everywhere:
            fill += "mount --bind /dev/shm $TMPDIR; mount --bind /dev/shm $XDG_RUNTIME_DIR; "
            fill += "mount --bind /dev/shm /tmp; "
        _is_kept_or_its_loss_is_said(beside, fill + "$RUN $PYTHON $PROGRAMS/slow.py 6")

    at_once(partial(run, 2), partial(run, 4))


@needs_mounts
def test_a_stage_that_vanishes_loses_no_verdict(beside: Beside) -> None:
    """At the end of a login its XDG_RUNTIME_DIR goes; somebody tidies up /dev/shm."""

    def remove(started: Started) -> None:
        started.until("waits")
        if started.is_watched:
            first = started.folder / "run" / "events.jsonl"
            started.until_true(first.exists, "the first copy of the run's files")
        for place in ("shm", "xdg", "tmp"):
            for entry in (started.folder / place).iterdir():
                shutil.rmtree(entry, ignore_errors=True)

    _is_kept_or_its_loss_is_said(beside, "$RUN $PYTHON $PROGRAMS/slow.py 6", remove)


def _is_kept_or_its_loss_is_said(
    beside: Beside, script: str, meanwhile: Meanwhile | None = None
) -> None:
    both = beside(script, watch=HANG_STALL, meanwhile=meanwhile).check()
    run = both.watched
    if not run.verdict:
        assert any(map(_SAID.search, run.ours)), both
        assert "paste it into an issue" not in run.err, both


def test_limits_priorities_and_places_are_inherited_unchanged(beside: Beside) -> None:
    """What a monitor raises or lowers for itself, it does for itself alone."""
    set_up = (
        "ulimit -Sn 300; ulimit -Su 5000; ulimit -c 0; umask 027; "
        "echo 77 > /proc/self/oom_score_adj; "
    )
    program = "nice -n 3 ionice -c 3 taskset -c 0 $RUN bash $PROGRAMS/surroundings.sh; exit $?"
    both = beside(set_up + program).check()
    assert len(both.plain.out.splitlines()) > 60, both


def test_the_environment_has_nothing_more_than_our_own_variables(beside: Beside) -> None:
    both = beside("$RUN env -0 | sort -z | tr '\\0' '\\n'").check("out")
    ours, theirs = (_variables(run) for run in (both.watched, both.plain))
    more = {name for name in ours if name not in theirs and not name.startswith("HANGBISECT_")}
    changed = {name for name in theirs if ours.get(name) != theirs[name]} - {"_"}
    assert (more, changed - {"PYTHONPATH"}) == (set(), set()), both
    assert ours["PYTHONPATH"].endswith(theirs["PYTHONPATH"]), both


def _variables(run: Run) -> dict[str, str]:
    found = dict(line.split("=", 1) for line in run.out.splitlines() if "=" in line)
    assert found.pop(jobs.MARK) == str(run.folder)  # the test's own
    return found


def test_a_command_line_and_an_environment_as_long_as_there_can_be(beside: Beside) -> None:
    """Our own variables count too (execve(2): E2BIG). They give way."""
    script = "ulimit -s 1024; exec $PYTHON $PROGRAMS/fills.py $RUN bash -c 'env | wc -c'"
    both = beside(script).check("out")
    assert all(int(run.out or 0) > 200_000 for run in (both.plain, both.watched)), both
    beside("$RUN bash -c 'echo $#' x $(seq 20000)").check()


LIMITS = ("-v 400000", "-f 0", "-l 0 -c 0 -e 0 -q 0 -x 0 -t 20", "-i 2", "-s 256")


def test_a_program_below_a_limit_ends_as_without_us(beside: Beside) -> None:
    """Memory, files (our own too), locked memory, queues, locks, CPU, signals, stack."""
    program = "exec $RUN $PYTHON $PROGRAMS/ends_with.py 0.3 7 rank"

    def run(limit: str) -> Both:
        return beside(f"(ulimit {limit}; {program}) | cat; echo ${{PIPESTATUS[0]}}").check()

    for both in at_once(*(partial(run, limit) for limit in LIMITS)):
        assert both.plain.out == "ends\n7\n"


def test_what_a_program_used_is_what_its_parent_is_told(beside: Beside) -> None:
    """`time`, wait4(2): the CPU of the program counts for who started the command."""
    program = "$PYTHON -c 'import time\nwhile time.process_time() < 2: pass'"
    both = beside(f"TIMEFORMAT='%U %S'; time $RUN {program}").check("theirs")
    used = [sum(map(float, run.err.split()[-2:])) for run in (both.plain, both.watched)]
    assert all(seconds >= 2 for seconds in used), both


@needs_root
@needs_mounts
def test_other_processes_are_hidden(beside: Beside) -> None:
    def run(user: int | None, hide: str) -> Both:
        program = "exec $RUN $PYTHON $PROGRAMS/ends_with.py 5 7 rank"
        before = ("sh", "-c", f'{hide} && exec "$@"', "sh")
        return beside(program, watch=HANG_STALL, user=user, before=before).check()

    hidden = partial(run, USER, "mount -t proc -o hidepid=2 p /proc")
    for both in at_once(hidden, partial(run, None, "umount -l /proc")):
        assert both.plain.status == 7
