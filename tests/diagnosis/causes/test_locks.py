"""Lock files and locks on files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import FileLock, Look

from ..made_up import SLEEP, held, job, look, rank
from .scenes import Facts, Shows, causes_of, with_locals
from .seen import first

BATON = look(
    "FileBaton.wait SP/torch/utils/file_baton.py:52",
    "_jit_compile SP/torch/utils/cpp_extension.py:2163",
    "load SP/torch/utils/cpp_extension.py:1482",
    "<module> ops.py:4",
    call="clock_nanosleep",
    wchan="hrtimer_nanosleep",
)
POLLS = look(
    "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177",
    "BaseFileLock.acquire SP/filelock/_api.py:1037",
    "WeakFileLock SP/huggingface_hub/utils/_fixes.py:99",
    "_GeneratorContextManager.__enter__ STD/contextlib.py:137",
    "_hf_hub_download_to_cache_dir SP/huggingface_hub/file_download.py:1170",
    "<module> train.py:9",
    call="clock_nanosleep",
    wchan="hrtimer_nanosleep",
)
LEFT = FileLock("/home/ada/.cache/torch_extensions/ops/lock", 7, None, waiting=False, age=86400.0)
ETAG = "/home/ada/.cache/huggingface/hub/.locks/models--gpt2/11c5a3d5.lock"
HOLDER = FileLock(ETAG, 8, 4711, "python3", waiting=False, age=600.0)


def soft(name: str = "SoftFileLock") -> Look:
    said: dict[str, Any] = {"lock_filename": ETAG, "timeout": 10}
    one = with_locals(POLLS, "BaseFileLock._poll_until_acquired", **said)
    main = one.threads[0]
    told = (("self", f"<{name}>"), *main.frames[0].locals)
    frames = (replace(main.frames[0], locals=told), *main.frames[1:])
    return replace(one, threads=(replace(main, frames=frames),))


def stale_build_lock() -> Facts:
    return job(), [rank(n, replace(BATON, stale_locks=(LEFT,))) for n in (0, 1)]


def build_in_progress() -> Facts:
    builds = look(
        "Popen.wait STD/subprocess.py:1264",
        "_run_ninja_build SP/torch/utils/cpp_extension.py:2577",
        "_write_ninja_file_and_build_library SP/torch/utils/cpp_extension.py:2205",
        "<module> ops.py:4",
        call="wait4",
    )
    ninja = look(pid=300, ppid=100, name="ninja", call="poll", rung="proc")
    return job("limit"), [
        first(builds, ninja, moved="its child cc1plus was started"),
        rank(1, BATON),
    ]


def file_lock_held() -> Facts:
    return job(), [rank(0, replace(POLLS, locks=(HOLDER,))), held(1)]


def lock_file_left() -> Facts:
    left = FileLock(ETAG, 8, None, waiting=False, age=9000.0)
    return job(), [rank(0, replace(soft(), stale_locks=(left,))), held(1)]


def lock_not_to_be_had() -> Facts:
    said = ("Lock 140 not acquired: [Errno 37] No locks available",)
    return job(), [rank(0, soft("UnixFileLock"), output=said), held(1)]


def metric_lock() -> Facts:
    meets = look(
        "acquire SP/datasets/utils/filelock.py:275",
        "_check_all_processes_locks SP/datasets/metric.py:350",
        "compute SP/datasets/metric.py:430",
        "<module> train.py:50",
        call="clock_nanosleep",
    )
    return job(), [rank(0, meets), held(1)]


SHOWS: Shows = {
    "stale-build-lock": stale_build_lock,
    "build-in-progress": build_in_progress,
    "file-lock-held": file_lock_held,
    "lock-file-left": lock_file_left,
    "lock-not-to-be-had": lock_not_to_be_had,
    "metric-lock": metric_lock,
}


def test_a_build_that_somebody_is_at_has_no_stale_lock() -> None:
    compiler = look(pid=300, ppid=100, name="cc1plus", call="", state="R", rung="proc")
    assert "stale-build-lock" not in causes_of((job(), [first(SLEEP, compiler), rank(1, BATON)]))


def test_a_build_lock_that_another_job_has_open_is_not_stale() -> None:
    other = FileLock(LEFT.path, 7, 4711, "python3", waiting=False)
    ranks = [rank(n, replace(BATON, locks=(other,))) for n in (0, 1)]
    assert "stale-build-lock" not in causes_of((job(), ranks))


def test_a_file_called_lock_is_not_enough() -> None:
    sleeps = look("wait train.py:8", "<module> train.py:20", call="clock_nanosleep")
    assert "stale-build-lock" not in causes_of((job(), [rank(0, sleeps), held(1)]))


def test_a_lock_of_which_nobody_is_known_is_not_said_to_be_held() -> None:
    found = causes_of((job(), [rank(0, POLLS), held(1)]))
    assert not set(found) & {"file-lock-held", "lock-file-left", "lock-not-to-be-had"}


def test_flock_itself_is_a_wait_for_a_lock() -> None:
    wants = FileLock("/dev/chip0", 9, 4711, "other", waiting=True)
    waits = look("load driver.py:8", "<module> train.py:2", call="flock", locks=(wants,))
    why = causes_of((job(), [rank(0, waits), held(1)]))["file-lock-held"]
    assert "other (4711)" in why.why
    assert "/dev/chip0" in why.why


def test_the_path_of_a_soft_lock_is_in_the_command_that_removes_it() -> None:
    assert f"rm {ETAG}" in causes_of(lock_file_left())["lock-file-left"].avoid


def test_a_real_lock_is_no_file_that_was_left() -> None:
    assert "lock-file-left" not in causes_of(file_lock_held())


def test_a_metric_that_all_ranks_compute_is_not_missed_by_any() -> None:
    _, ranks = metric_lock()
    both = [ranks[0], replace(ranks[0], rank=1, pid=101)]
    found = causes_of((job(), both))
    assert "metric-lock" not in found or found["metric-lock"].agreement <= 0.8
