"""Python itself: the GIL, imports that wait for one another, the loader of libraries."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Frame, Look

from ..made_up import held, job, look, rank
from .scenes import Facts, Shows, causes_of, with_locals
from .seen import FOREVER, LIBC, LOCK, PYTHON, TIMED, beside, first, native

IMPORTS = (
    "_load_unlocked <frozen importlib._bootstrap>:690",
    "_find_and_load_unlocked <frozen importlib._bootstrap>:1147",
    "_find_and_load <frozen importlib._bootstrap>:1176",
)
JOINS = native(
    look(
        "Thread._wait_for_tstate_lock STD/threading.py:1139",
        "Thread.join STD/threading.py:1119",
        "<module> SP/corpora/__init__.py:6",
        *IMPORTS,
        "<module> train.py:7",
        args=FOREVER,
    ),
    *LOCK,
)
WANTS = (
    "_ModuleLock.acquire <frozen importlib._bootstrap>:120",
    "_lock_unlock_module <frozen importlib._bootstrap>:224",
    "fetch SP/corpora/__init__.py:3",
    "Thread.run STD/threading.py:982",
)
KEEPS = native(
    look("load train.py:5", "<module> train.py:9", call="clock_nanosleep", gil=True),
    ("clock_nanosleep", LIBC),
    ("sleep", LIBC),
    ("ffi_call_int", "/usr/lib/libffi.so.8"),
    ("_call_function_pointer", PYTHON),
)


def gil_held() -> Facts:
    one = beside(KEEPS, ("heartbeat", ("beat train.py:3",)), args=TIMED)
    return job(), [rank(0, one, one), held(1)]


def import_deadlock() -> Facts:
    return job(), [first(beside(JOINS, ("Thread-1", WANTS))), held(1)]


def import_stuck() -> Facts:
    waits = look(
        "probe SP/newchip/__init__.py:9",
        "<module> SP/newchip/__init__.py:20",
        *IMPORTS,
        "<module> train.py:1",
        call="ioctl",
    )
    return job(), [rank(0, waits), held(1)]


def loader_deadlock() -> Facts:
    loads = native(
        look(
            "_call_with_frames_removed <frozen importlib._bootstrap>:241",
            "ExtensionFileLoader.create_module <frozen importlib._bootstrap_external>:1233",
            "<module> SP/sklearn/utils/__init__.py:9",
            *IMPORTS,
            "<module> train.py:1",
            args=FOREVER,
        ),
        ("__lll_lock_wait", LIBC),
        ("_dl_open", "/lib64/ld-linux-x86-64.so.2"),
        ("dlopen", LIBC),
    )
    both = beside(loads, ("Thread-1", ("run pool.py:3",)))
    thread = both.threads[-1]
    inside = Frame("_dl_iterate_phdr", LIBC, 0, native=True)
    thread = replace(thread, frames=(inside, *thread.frames))
    return job(), [first(replace(both, threads=(*both.threads[:-1], thread))), held(1)]


SHOWS: Shows = {
    "gil-held": gil_held,
    "import-deadlock": import_deadlock,
    "import-stuck": import_stuck,
    "loader-deadlock": loader_deadlock,
}


def test_the_function_that_keeps_the_gil_is_named() -> None:
    why = causes_of(gil_held())["gil-held"].why
    assert "sleep (libc.so.6)" in why


def test_a_thread_that_had_the_gil_in_one_look_only_passes_it_on() -> None:
    free = replace(KEEPS, threads=(replace(KEEPS.threads[0], owns_gil=False),))
    assert "gil-held" not in causes_of((job(), [rank(0, KEEPS, free), held(1)]))


def test_python_that_computes_has_the_gil_rightly() -> None:
    works: Look = look("step train.py:5", call="", state="R", gil=True)
    assert "gil-held" not in causes_of((job("busy"), [rank(0, works, works), held(1)]))


def test_both_imports_are_named() -> None:
    one = with_locals(JOINS, "_find_and_load", name="corpora")
    why = causes_of((job(), [first(beside(one, ("Thread-1", WANTS))), held(1)]))
    assert "corpora" in why["import-deadlock"].why
    assert "Thread-1" in why["import-deadlock"].why


def test_one_import_alone_is_no_deadlock() -> None:
    assert "import-deadlock" not in causes_of((job(), [rank(0, JOINS), held(1)]))


def test_a_script_that_trains_while_it_is_run_imports_nothing() -> None:
    trains = look(
        "recv STD/socket.py:706", "fetch train.py:3", "<module> train.py:20", call="recvfrom"
    )
    assert "import-stuck" not in causes_of((job(), [rank(0, trains), held(1)]))


def test_a_library_that_is_loading_is_no_deadlock() -> None:
    loads = native(
        look("<module> train.py:1", call="pread64", wchan="folio_wait_bit_common"),
        ("_dl_map_object_from_fd", "/lib64/ld-linux-x86-64.so.2"),
    )
    assert "loader-deadlock" not in causes_of((job(), [rank(0, loads), held(1)]))


def test_a_library_that_is_run_as_a_program_is_not_being_imported() -> None:
    """`python -m torch.distributed.run`: its module is on the stack, and nothing imports it."""
    runs = look(
        "SimpleElasticAgent._invoke_run SP/torch/distributed/elastic/agent/server/api.py:923",
        "main SP/torch/distributed/run.py:1028",
        "<module> SP/torch/distributed/run.py:1032",
        "_run_code <frozen runpy>:88",
        "_run_module_as_main <frozen runpy>:198",
        call="clock_nanosleep",
    )
    assert "import-stuck" not in causes_of((job(), [rank(0, runs), held(1)]))
