"""Whoever polls a lock on a file is understood alike everywhere, whichever library polls.

The stacks are those of real processes: filelock 4.2 and 3.0.12, portalocker 4.4, fasteners 0.20,
torch 2.13. portalocker and fasteners keep the file open while they ask, and no local variable names
it: the kernel's list of locks does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hangbisect.base.library_functions import BUILD_LOCK
from hangbisect.base.process_facts import FileLock, Look
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Wait
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.evidence import lock_and_log_files
from hangbisect.evidence.movement import describe_movement
from hangbisect.evidence.stacks import keep_locals

from .causes.scenes import causes_of, with_locals
from .made_up import held, job, look, rank

PATH = "/home/ada/.cache/x.lock"
USER = "main train.py:9"


@dataclass(frozen=True)
class Poll:
    """A stack that polls a lock, up to the job's own code."""

    frames: tuple[str, ...]
    at: int  # which of them is the function that asks again and again
    tells: tuple[str, str, str] | None = None  # function, local and value that tell the path


def poll(*frames: str, at: int = 0, tells: tuple[str, str, str] | None = None) -> Poll:
    return Poll(frames, at, tells)


POLLS = {
    "filelock": poll(
        "BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177",
        "BaseFileLock.acquire SP/filelock/_api.py:1037",
        at=1,
        tells=("BaseFileLock._poll_until_acquired", "lock_filename", PATH),
    ),
    "filelock of one file": poll(
        "BaseFileLock.acquire SP/filelock.py:284",
        "BaseFileLock.__enter__ SP/filelock.py:323",
        tells=("BaseFileLock.acquire", "lock_filename", PATH),
    ),
    "datasets/utils/filelock.py": poll(
        "BaseFileLock.acquire SP/datasets/utils/filelock.py:275",
        "BaseFileLock.__enter__ SP/datasets/utils/filelock.py:316",
        tells=("BaseFileLock.acquire", "lock_filename", PATH),
    ),
    "datasets/utils/_filelock.py": poll(
        "BaseFileLock.acquire SP/datasets/utils/_filelock.py:275",
        tells=("BaseFileLock.acquire", "lock_filename", PATH),
    ),
    "torch's FileBaton": poll(
        "FileBaton.wait SP/torch/utils/file_baton.py:50",
        "_jit_compile SP/torch/utils/cpp_extension.py:2163",
        "load SP/torch/utils/cpp_extension.py:1482",
        tells=("_jit_compile", "build_directory", "/home/ada/.cache/ops"),
    ),
    "portalocker": poll(
        "LockBase._timeout_generator SP/portalocker/utils.py:745",
        "Lock.acquire SP/portalocker/utils.py:1239",
        "Lock.__enter__ SP/portalocker/utils.py:1353",
        at=1,
    ),
    "fasteners": poll(
        "Retry.__call__ SP/fasteners/_utils.py:115",
        "InterProcessLock.acquire SP/fasteners/process_lock.py:149",
        at=1,
    ),
    "fasteners, readers and writers": poll(
        "Retry.__call__ SP/fasteners/_utils.py:115",
        "InterProcessReaderWriterLock._acquire SP/fasteners/process_lock.py:349",
        "InterProcessReaderWriterLock.acquire_write_lock SP/fasteners/process_lock.py:332",
        "InterProcessReaderWriterLock.write_lock SP/fasteners/process_lock.py:248",
        at=1,
    ),
}
BUILD = "torch's FileBaton"
every_poll = pytest.mark.parametrize("one", POLLS.values(), ids=list(POLLS))
polls_that_tell = pytest.mark.parametrize(
    "one", [p for p in POLLS.values() if p.tells], ids=[n for n, p in POLLS.items() if p.tells]
)


def waits(one: Look, *others: RankFacts) -> Wait:
    """Return what rank 0 with this look waits for, beside other ranks."""
    facts = rank(0, one)
    found = Snapshot([facts, *others]).waits[0]
    assert found is not None
    return found


def polling(one: Poll, *innermost: str, line: int | None = None) -> Look:
    """A look at a rank that polls; `line`: another one of the function that does."""
    frames = list(one.frames)
    if line is not None:
        frames[: one.at + 1] = [f"{frames[one.at].rpartition(':')[0]}:{line}"]
    return look(*innermost, *frames, USER, call="clock_nanosleep", wchan="hrtimer_nanosleep")


def telling(one: Poll) -> Look:
    """The same with the local that tells the path, and the lock's own object."""
    assert one.tells is not None
    function, local, path = one.tells
    seen = with_locals(polling(one), function, **{local: path})
    main = seen.threads[0]
    frames = tuple(
        replace(f, locals=(*f.locals, ("self", "<UnixFileLock>"))) if local in dict(f.locals) else f
        for f in main.frames
    )
    return replace(seen, threads=(replace(main, frames=frames),))


@every_poll
def test_who_asks_again_in_the_same_place_does_not_move(one: Poll) -> None:
    first = polling(one)
    assert describe_movement([first, polling(one, line=1)]) == ""
    assert describe_movement([first, polling(one, "_open STD/os.py:7")]) == ""
    assert describe_movement([first, polling(one, "_try STD/x.py:7", line=2)]) == ""
    assert describe_movement([first, look("main train.py:10", call="clock_nanosleep")])


@every_poll
def test_it_waits_for_the_file_of_the_lock(one: Poll) -> None:
    assert waits(polling(one)).kind == "lock"
    has = FileLock(PATH, 8, 4711, "rsync", waiting=False)
    found = waits(replace(polling(one), locks=(has,)))
    assert (found.kind, found.detail, found.what, found.pid) == ("lock", PATH, PATH, 4711)


@every_poll
def test_one_that_is_caught_as_it_tries_waits_for_a_lock(one: Poll) -> None:
    caught = replace(polling(one, "_open STD/os.py:7"), state="R")
    assert waits(caught).kind == "lock"


@polls_that_tell
def test_the_path_is_among_the_locals_that_are_kept(one: Poll) -> None:
    assert one.tells is not None
    function, local, path = one.tells
    frame = next(f for f in polling(one).threads[0].frames if f.name == function)
    assert keep_locals(frame, [(local, f'"{path}"')]) == ((local, f'"{path}"'),)


@polls_that_tell
def test_which_lock_of_others_it_asks_for_is_told_by_the_locals(
    one: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = telling(one)
    if one is POLLS[BUILD]:  # that the file is there is the lock: the kernel knows of none
        assert [*lock_and_log_files.find_awaited_files(seen.threads)] == [
            "/home/ada/.cache/ops/lock"
        ]
        return
    wanted = FileLock(PATH, 8, 101, "python", waiting=False)
    other = replace(wanted, path="/home/ada/.cache/y.lock", inode=9)
    monkeypatch.setattr(lock_and_log_files, "find_all_held_locks", lambda: (other, wanted))
    assert lock_and_log_files.find_polled_locks(100, seen.threads) == (wanted,)
    found = waits(seen, rank(1, look("main train.py:30", holds=(other, wanted))))
    assert (found.kind, found.what, found.rank) == ("lock", PATH, 1)


@polls_that_tell
def test_the_path_that_the_locals_tell_is_the_reason_though_nobody_is_known_to_have_it(
    one: Poll,
) -> None:
    found = waits(telling(one))
    # Whose build it is, is told by who builds: see waits_for_unknown_builder.
    told = (BUILD_LOCK, "") if one is POLLS[BUILD] else (PATH, PATH)
    assert (found.kind, found.detail, found.what) == ("lock", *told)


@every_poll
def test_the_cause_is_named(one: Poll) -> None:
    if one is POLLS[BUILD]:
        left = FileLock(f"{PATH}/lock", 7, None, waiting=False, age=86400.0)
        ranks = [rank(n, replace(polling(one), stale_locks=(left,))) for n in (0, 1)]
        assert "stale-build-lock" in causes_of((job(), ranks))
        return
    has = FileLock(PATH, 8, 4711, "rsync", waiting=False)
    found = causes_of((job(), [rank(0, replace(polling(one), locks=(has,))), held(1)]))
    assert PATH in found["file-lock-held"].why


@pytest.mark.parametrize(
    "frame",
    [
        "acquire locks.py:7",
        "Lock.acquire SP/mylib/utils.py:7",
        "RedisLock.acquire SP/portalocker/redis.py:7",  # no lock on a file
        "ReaderWriterLock.acquire_read_lock SP/fasteners/lock.py:110",  # one of threads
        "BaseFileLock.release SP/filelock/_api.py:1300",
        "main SP/notfilelock/_api.py:7",
    ],
)
def test_another_function_polls_no_lock(frame: str) -> None:
    seen = look(frame, USER, call="clock_nanosleep")
    assert waits(seen).kind == "sleep"
    assert describe_movement([seen, look(f"{frame}1", USER, call="clock_nanosleep")])
