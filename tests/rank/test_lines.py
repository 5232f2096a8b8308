"""Lines of a rank: whole, dated, and never waiting for a reader for long."""

from __future__ import annotations

import os
import pty
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from hangbisect.base.place import find_place
from hangbisect.rank import began
from hangbisect.rank.lines import PATIENCE, Lines, write_within
from hypothesis import given
from hypothesis import strategies as st

DEADLINE = 60.0
PLACE = replace(find_place({}), rank=1, local_rank=1, world_size=2)
LINE = re.compile(
    r"\[(\d\d):(\d\d):(\d\d)\.(\d{3})\]\[\+(\d+\.\d{3})s\]\[R1/2\]\[LR1\]\[PID:(\d+)\] (.*)"
)


class Pipe:
    """A pipe that is read only when asked."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.lines = Lines(PLACE, self.writer)

    def read(self) -> list[str]:
        os.set_blocking(self.reader, False)
        data = b""
        with suppress(BlockingIOError):
            while block := os.read(self.reader, 1 << 20):
                data += block
        return data.decode().splitlines(keepends=True)

    def fill(self) -> None:
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while os.write(self.writer, b"x" * 4096):
                pass
        os.set_blocking(self.writer, True)

    def close(self) -> None:
        for descriptor in (self.reader, self.writer):
            with suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_a_line_says_when_who_and_what(pipe: Pipe) -> None:
    pipe.lines.say("CHECKPOINT 1: Script started")
    (line,) = pipe.read()
    found = LINE.fullmatch(line.rstrip("\n"))
    assert found is not None, line
    assert found[6] == str(os.getpid())
    assert found[7] == "CHECKPOINT 1: Script started"
    assert 0.0 < float(found[5]) <= time.monotonic() - began.MONOTONIC + 0.001  # rounded


def test_time_runs_on_from_line_to_line(pipe: Pipe) -> None:
    for number in range(20):
        pipe.lines.say(str(number))
    elapsed = [float(found[5]) for line in pipe.read() if (found := LINE.match(line))]
    assert len(elapsed) == 20
    assert elapsed == sorted(elapsed)


def test_each_line_of_a_text_has_its_own_stamp(pipe: Pipe) -> None:
    pipe.lines.say("one\ntwo\n")
    assert [line.partition("] ")[2] for line in pipe.read()] == ["one\n", "two\n"]


def test_others_are_told_the_line_and_not_the_stamp(pipe: Pipe) -> None:
    told: list[str] = []
    pipe.lines.told = told.append
    pipe.lines.say("one\ntwo")
    assert told == ["one", "two"]


def test_of_many_ranks_each_is_quiet_but_tells(pipe: Pipe) -> None:
    told: list[str] = []
    pipe.lines.told, pipe.lines.quiet = told.append, True
    pipe.lines.say("one")
    assert (pipe.read(), told) == ([], ["one"])


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_makes_whole_lines(text: str) -> None:
    pipe = Pipe()
    try:
        pipe.lines.say(text)
        read = pipe.read()
        assert len(read) >= bool(text.strip())
        assert all(line.endswith("\n") for line in read)
    finally:
        pipe.close()


def test_ranks_never_mix_in_a_line(pipe: Pipe) -> None:
    other = Lines(replace(PLACE, rank=0, local_rank=0), pipe.writer)

    def talk(lines: Lines, letter: str) -> None:
        for _ in range(50):  # less than a pipe holds
            lines.say(letter * 300)

    threads = [
        threading.Thread(target=talk, args=pair) for pair in ((pipe.lines, "a"), (other, "b"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    texts = [line.partition("] ")[2].rstrip("\n") for line in pipe.read()]
    assert sorted(texts) == ["a" * 300] * 50 + ["b" * 300] * 50


# ---- a pipe that nobody reads -----------------------------------------------------------------


def test_lines_that_nobody_reads_are_dropped_and_counted_and_the_rank_goes_on(pipe: Pipe) -> None:
    pipe.fill()
    start = time.monotonic()
    for number in range(100):
        pipe.lines.say(f"line {number}")
    # Only the first waits: a hundred that each waited would take a hundred times as long.
    assert time.monotonic() - start < 50 * PATIENCE
    pipe.read()
    pipe.lines.say("read again")
    pipe.lines.say("and again")
    texts = [line.partition("[PID:")[2].partition("] ")[2] for line in pipe.read()]
    assert texts == ["(100 lines dropped: nobody read them) read again\n", "and again\n"]


def test_a_line_waits_for_a_reader_that_is_only_slow(pipe: Pipe) -> None:
    pipe.fill()
    reader = threading.Timer(PATIENCE / 10, pipe.read)
    reader.start()
    assert write_within(pipe.writer, b"here\n", DEADLINE)
    reader.join(DEADLINE)


def test_a_line_longer_than_a_pipe_takes_at_once_comes_whole(pipe: Pipe) -> None:
    read: list[bytes] = []

    def read_all() -> None:
        while not b"".join(read).endswith(b"\n"):
            read.append(os.read(pipe.reader, 1000))

    reader = threading.Thread(target=read_all)
    reader.start()
    pipe.lines.say("x" * 300_000)
    reader.join(DEADLINE)
    assert b"".join(read).count(b"x") == 300_000


def test_a_line_that_was_taken_in_part_does_not_run_into_the_next(pipe: Pipe) -> None:
    pipe.lines.say("x" * 300_000)  # more than the pipe holds
    read = pipe.read()
    pipe.lines.say("next")
    last = "".join([*read, *pipe.read()]).splitlines()[-1]
    assert LINE.fullmatch(last), last[-120:]
    assert "xxx" not in last


@pytest.mark.parametrize("end", ["reader", "writer"])
def test_a_pipe_that_is_closed_drops_lines_and_raises_nothing(end: str, pipe: Pipe) -> None:
    os.close(getattr(pipe, end))
    pipe.lines.say("nobody")
    pipe.lines.say("hears this")


def test_a_descriptor_that_does_not_block_is_no_error(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    pipe.fill()
    os.set_blocking(pipe.writer, False)
    assert not write_within(pipe.writer, b"x", 0.0)


# ---- colours ----------------------------------------------------------------------------------


def on_a_terminal(lines: Lines) -> str:
    """Return what a terminal gets."""
    main, side = pty.openpty()
    lines.fd = side
    try:
        lines.say("hello")
        return os.read(main, 4096).decode()
    finally:
        os.close(side)
        os.close(main)


def test_a_terminal_gets_the_stamp_in_the_colour_of_the_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = [on_a_terminal(Lines(replace(PLACE, rank=rank))) for rank in (0, 1)]
    assert all(re.match(r"\x1b\[\d+m\[.*\]\x1b\[0m hello", text) for text in shown)
    assert shown[0].partition("m")[0] != shown[1].partition("m")[0]


def test_no_color_and_plain_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = Lines(PLACE)
    plain.plain = True
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in on_a_terminal(plain)
    assert "\x1b" not in on_a_terminal(Lines(PLACE))


def test_a_pipe_gets_no_colours(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    pipe.lines.say("hello")
    assert "\x1b" not in "".join(pipe.read())
