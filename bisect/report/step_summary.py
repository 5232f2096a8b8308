"""The summary of a step in GitHub Actions: what it is given as Markdown, on the run's page."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..evidence.aside import within
from .issue.length import STEP_SUMMARY

LIMIT = 5.0  # seconds


def add_to_step_summary(text: str, environ: Mapping[str, str]) -> bool:
    """Append `text` to the step's summary; return whether it was. Not where there is none, and
    not where it would make it larger than GitHub takes: it would drop all of it.
    """
    file = environ.get("GITHUB_STEP_SUMMARY", "")
    if environ.get("GITHUB_ACTIONS") != "true" or not file:
        return False
    data = text.encode("utf-8", "replace") + b"\n"

    def append() -> bool:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
        with open(descriptor, "ab") as opened:
            if os.fstat(descriptor).st_size + len(data) > STEP_SUMMARY:
                return False
            opened.write(data)
        return True

    try:
        return within(LIMIT, append)
    except (OSError, TimeoutError):
        return False
