"""Libraries that were put in the place of the functions that a program calls."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Look

from ..made_up import held, job, look, rank
from .scenes import Facts, Shows, causes_of
from .seen import FOREVER, LIBC, PYTHON, native, with_futex

VGPU = "/usr/local/vgpu/libvgpu.so"
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
NCCL = "/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"
SOCKET = "/usr/lib/python3.11/lib-dynload/_socket.cpython-311-x86_64-linux-gnu.so"
CONNECTS = look(
    "create_connection STD/socket.py:836", "load train.py:7", call="futex", args=FOREVER
)


def facts(one: Look, *preloaded: str) -> Facts:
    return job(), [rank(0, replace(one, preloaded=preloaded)), held(1)]


def communicates(*inner: tuple[str, str]) -> Look:
    """A rank that makes NCCL's communicator, in these innermost native frames."""
    return native(
        look(
            "_new_process_group_helper SP/torch/distributed/distributed_c10d.py:2169", args=FOREVER
        ),
        *inner,
        ("ncclCommInitRank", NCCL),
    )


def preloaded_library() -> Facts:
    waits = (("__lll_lock_wait", LIBC), ("pthread_mutex_lock", LIBC), ("cuMemCreate", VGPU))
    return facts(communicates(*waits), VGPU)


SHOWS: Shows = {"preloaded-library": preloaded_library}


def test_the_library_is_named_with_its_own_switch_and_never_more_than_fits() -> None:
    cause = causes_of(preloaded_library())["preloaded-library"]
    assert "cuMemCreate (libvgpu.so)" in cause.why
    assert any("CUDA_DISABLE_CONTROL=true" in words for words in cause.avoid)
    assert cause.level == "fits"


def test_of_a_library_without_a_known_switch_the_job_is_started_without_it() -> None:
    one = native(CONNECTS, ("pthread_mutex_lock", LIBC), ("connect", "/opt/x/libx.so"))
    cause = causes_of(facts(one, "/opt/x/libx.so"))["preloaded-library"]
    assert any("LD_PRELOAD" in words for words in cause.avoid)
    assert not any("?" in words for words in cause.avoid)


def test_a_bare_name_and_a_library_with_its_source_are_the_same_library() -> None:
    one = native(CONNECTS, ("pthread_mutex_lock", LIBC), ("connect", "/src/hook.c"))
    main = one.threads[0]
    frames = tuple(
        replace(f, library="/opt/x/libx.so") if f.name == "connect" else f for f in main.frames
    )
    one = replace(one, threads=(replace(main, frames=frames),))
    assert "connect (libx.so)" in causes_of(facts(one, "libx.so"))["preloaded-library"].why


def test_a_link_to_a_version_of_it_is_the_same_library() -> None:
    one = native(CONNECTS, ("pthread_mutex_lock", LIBC), ("connect", "/opt/x/libx.so.1.2"))
    assert causes_of(facts(one, "/opt/x/libx.so"))["preloaded-library"].level == "fits"
    other = native(CONNECTS, ("pthread_mutex_lock", LIBC), ("connect", "/opt/x/libxy.so"))
    assert "preloaded-library" not in causes_of(facts(other, "/opt/x/libx.so"))


def test_its_own_lock_taken_twice_is_the_librarys_and_no_lock_of_pythons() -> None:
    one = native(CONNECTS, ("pthread_mutex_lock", LIBC), ("connect", "/opt/x/libx.so"))
    found = causes_of(facts(with_futex(one, 100), "/opt/x/libx.so"))
    assert "preloaded-library" in found
    assert not {"self-deadlock", "deadlock"} & set(found)


def test_an_allocator_that_is_preloaded_is_not_blamed_for_a_hang_elsewhere() -> None:
    for inner in (
        [("__libc_recv", LIBC), ("sock_recv", SOCKET)],
        [("__futex_abstimed_wait", LIBC), ("PyThread_acquire_lock_timed", PYTHON)],
        [("poll", LIBC), ("ncclCommInitRank", NCCL), ("malloc", JEMALLOC)],
    ):
        found = causes_of(facts(native(CONNECTS, *inner), JEMALLOC))
        assert "preloaded-library" not in found


@pytest.mark.parametrize("name", ["connect", "__connect", "__libc_connect", "__GI___connect"])
def test_a_library_that_hands_the_call_on_is_not_blamed(name: str) -> None:
    one = native(CONNECTS, (name, LIBC), ("connect", "/opt/x/libtrace.so"))
    assert "preloaded-library" not in causes_of(facts(one, "/opt/x/libtrace.so"))


def test_what_the_library_calls_in_turn_is_not_the_library() -> None:
    one = communicates(
        ("ioctl", LIBC), ("cuMemCreate", "/usr/lib/libcuda.so.1"), ("cuMemCreate", VGPU)
    )
    assert "preloaded-library" not in causes_of(facts(one, VGPU))


def test_where_nobody_says_what_is_preloaded_a_strange_place_is_only_a_guess() -> None:
    inner = (("pthread_mutex_lock", LIBC), ("connect", "/home/ada/hook/libhook.so"))
    found = causes_of(facts(native(CONNECTS, *inner)))
    assert found["preloaded-library"].level == "guess"
    own = (("pthread_mutex_lock", LIBC), ("read_sensor", "/home/ada/hook/libhook.so"))
    assert "preloaded-library" not in causes_of(facts(native(CONNECTS, *own)))
