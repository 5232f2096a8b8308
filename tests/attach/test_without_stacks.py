"""What is said of a rank whose stack cannot be read."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.attach.job_looks import Download
from hangbisect.attach.unreadable_stacks import find_reason, is_unread, unread_lines
from hangbisect.base.process_facts import FileLock, Kernel, Look, Socket, Syscall
from hangbisect.base.rank_facts import RankFacts

from .test_words import SLEEP, rank

KERNEL = (
    Kernel(101, "python", "S", "sk_wait_data", Syscall(0, "recvfrom", (3, 0, 0, 0, 0, 0))),
    Kernel(105, "gloo_loop", "S", "ep_poll", None),
    Kernel(106, "gloo_loop", "S", "ep_poll", None),
)


def socket(received: int) -> Socket:
    return Socket(7, "tcp", "10.0.0.2:5", "10.0.0.1:443", "ESTABLISHED", received, 100)


def look(pid: int, at: float, received: int, **more: object) -> Look:
    plain = Look(at, pid, 1, "python", (), 9.0, "S", "proc", kernel=KERNEL)
    return replace(plain, sockets=(socket(received),), **more)  # type: ignore[arg-type]


UNREAD = RankFacts(
    1,
    1,
    101,
    "n01",
    looks=(
        look(101, 1.0, 2000, missing=("py-spy may not read 101 (no permission).",)),
        look(101, 3.5, 2040, locks=(FileLock("/c/x.lock", 9, 44, "python", waiting=False),)),
    ),
    children=(
        (replace(look(120, 1.0, 0), sockets=()), replace(look(120, 3.5, 0), sockets=(), name="cc")),
    ),
)


def test_a_rank_without_any_stack_is_told_from_one_that_has_some() -> None:
    assert is_unread(UNREAD)
    assert not is_unread(rank(1, SLEEP, "clock_nanosleep"))
    assert not is_unread(RankFacts(1))


def test_why_it_could_not_be_read_is_said_where_that_is_known() -> None:
    assert find_reason(UNREAD, "yama") == "yama"
    other = ("7 is not running Python, or not yet.",)
    none = replace(UNREAD, looks=(replace(UNREAD.looks[0], missing=other),))
    assert find_reason(none, "yama") == ""
    absent = ("py-spy is not installed: no Python stacks.",)
    assert find_reason(
        replace(UNREAD, looks=(replace(UNREAD.looks[0], missing=absent),)), "yama"
    ) == ("no py-spy")


def test_what_the_kernel_tells_is_all_there() -> None:
    downloads = [
        Download(3.5, 101, "/c/a.incomplete", 4096, True),
        Download(3.5, 999, "/c/b.incomplete", 1),
    ]
    assert unread_lines(UNREAD, "yama", downloads) == [
        "rank 1   pid 101   call: not readable (yama)",
        "threads   main S in sk_wait_data, recvfrom()",
        "gloo_loop S in ep_poll (2 of them)".rjust(44),
        "children  cc (120) S in sk_wait_data",
        "locks     has open /c/x.lock, held by python (44)",
        "sockets   -> 10.0.0.1:443 ESTABLISHED, 1.99 KiB received, 40 bytes of them in 2.5 s",
        "downloads /c/a.incomplete 4 KiB, grows",
    ]


def test_the_number_of_a_rank_is_not_needed() -> None:
    (first, *_) = unread_lines(UNREAD, "", [], "the launcher")
    assert first == "the launcher   pid 101   call: not readable (no Python runs there)"
