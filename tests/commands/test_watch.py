"""How `watch` becomes the script."""

from __future__ import annotations

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.commands.watch import _split_command, _with_local_rank, python_flags
from hangbisect.commands.watch import run as watch


@pytest.mark.parametrize(
    ("started", "flags"),
    [
        (["-u", "-m", "bisect"], ["-u"]),
        (["-um", "bisect"], ["-u"]),
        (["-u", "-mbisect"], ["-u"]),
        (["-X", "dev", "-W", "error", "/x/bin/hangbisect"], ["-X", "dev", "-W", "error"]),
        (["bisect"], []),
    ],
)
def test_python_gets_the_flags_it_had(started: list[str], flags: list[str]) -> None:
    assert python_flags(["python", *started, "watch", "a.py", "-m"], 3) == flags


@pytest.mark.parametrize(
    ("argv", "ours", "script"),
    [
        (["a.py", "--stall", "3"], [], ["a.py", "--stall", "3"]),
        (["--stall", "3", "a.py", "x"], ["--stall", "3"], ["a.py", "x"]),
        (["--stall=3", "--plain", "-m", "p.q", "x"], ["--stall=3", "--plain"], ["-m", "p.q", "x"]),
        (["--keep-watching", "--", "-odd.py"], ["--keep-watching"], ["-odd.py"]),
    ],
)
def test_options_stand_before_the_script(
    argv: list[str], ours: list[str], script: list[str]
) -> None:
    assert _split_command(argv) == (ours, script)


def test_an_old_launchers_local_rank_is_the_scripts() -> None:
    assert _with_local_rank(["a.py", "x"], ["--local-rank=1", "watch"]) == [
        *("a.py", "--local-rank=1", "x")
    ]
    assert _with_local_rank(["-m", "p", "x"], ["--local_rank", "1", "watch"])[2:4] == [
        *("--local_rank", "1")
    ]


@pytest.mark.parametrize("argv", [[], ["no-such-script.py"], ["--stll", "3", "a.py"]])
def test_what_cannot_be_run_is_said(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        watch(argv)
