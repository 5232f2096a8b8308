"""What libraries log as a warning or worse."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hangbisect.rank.messages import LONGEST_LOGGED, LogCapture

from ..programs import run_program


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The lines that were told while this is in use."""
    before = logging.getLogRecordFactory()
    lines: list[str] = []
    LogCapture(lines.append).listen()
    yield lines
    logging.setLogRecordFactory(before)


def test_warnings_and_worse_are_told_with_the_name_of_who_logs(told: list[str]) -> None:
    logger = logging.getLogger("huggingface_hub.utils")
    logger.info("nothing")
    logger.warning("Retrying in %ss [Retry %s/5].", 8, 4)
    logger.error("two\nlines")
    assert told == [
        "huggingface_hub.utils: Retrying in 8s [Retry 4/5].",
        "huggingface_hub.utils: two lines",
    ]


def test_what_the_level_of_the_logger_keeps_back_is_not_told(told: list[str]) -> None:
    logger = logging.getLogger("quiet")
    logger.setLevel(logging.ERROR)
    logger.warning("kept back")
    assert told == []


def test_secrets_are_masked_and_long_lines_cut(told: list[str]) -> None:
    logging.getLogger("urllib3").warning("GET https://me:hush@hub/x %s", "y" * 1000)
    assert "hush" not in told[0]
    assert len(told[0]) == LONGEST_LOGGED


def test_a_flood_is_thinned_out(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangbisect.rank.messages.time.monotonic", lambda: 1e9)
    for number in range(1000):
        logging.getLogger("flood").warning("line %d", number)
    assert 1 <= len(told) <= 20


def test_a_message_that_cannot_be_made_and_a_listener_that_fails_harm_nobody() -> None:
    before = logging.getLogRecordFactory()
    try:
        LogCapture(lambda line: 1 / 0).listen()  # type: ignore[arg-type]
        made = logging.getLogger("x").makeRecord("x", 40, "f", 1, "%d", ("no number",), None)
        assert made.levelno == 40
    finally:
        logging.setLogRecordFactory(before)


def test_logging_is_not_imported_for_it_and_basic_config_still_works(package: Path) -> None:
    program = """
import runpy, sys
runpy.run_path(sys.argv[1] + "/__main__.py")  # its package is in sys.modules from here on
from hangbisect.rank.messages import LogCapture
lines = []
LogCapture(lines.append).listen()
assert "logging" not in sys.modules
import logging
logging.basicConfig(format="as configured: %(message)s")
logging.warning("hello")
assert lines == ["root: hello"], lines
"""
    ran = run_program(program, str(package))
    assert ran.stderr == "as configured: hello\n"
