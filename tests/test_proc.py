"""What /proc says of a process in a line of its stat file (proc_pid_stat(5))."""

from __future__ import annotations

from hangbisect.base import proc
from hypothesis import given
from hypothesis import strategies as st

STAT = (
    "4296 (a) b (c) S 4293 4293 2264 0 -1 4194304 1142 0 7 0 11 5 0 0 20 0 2 0 100890 88821760 "
    "2540 18446744073709551615 1 2 3 0 0 0 0 16781318 0 0 0 0 17 1 0 0 0 0 0 1 2 3 4 5 6 7 256"
)


def test_a_stat_line_with_brackets_in_the_name() -> None:
    found = proc.parse_stat(STAT)
    assert found == proc.Stat(
        *("a) b (c", "S", 4293, 7, 16, 100890, 256),
        group=4293,
        session=2264,
        terminal=0,
        foreground=-1,
        stack=3,
        flags=4194304,
    )


@given(st.one_of(st.text(), st.from_regex(r"[0-9]{1,3} \(.{0,20}\) [A-Z]( -?[0-9]{0,20}){0,60}")))
def test_any_line_is_a_stat_or_none(text: str) -> None:
    found = proc.parse_stat(text)
    assert found is None or found.state == text.rpartition(")")[2].split()[0]
