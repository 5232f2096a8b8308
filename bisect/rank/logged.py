"""What libraries log as a warning or worse, told to the monitor: it often says why they wait.

Records are seen as they are made (logging.setLogRecordFactory), so that no handler is added:
logging.basicConfig does nothing where there is one already.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .after_import import after_import
from .masking import mask_text

LONGEST = 400  # characters
_AT_ONCE = 20  # lines; then one is told for each second that passed
_WARNING = 30  # logging.WARNING, without importing it


class Logged:
    """Tells what is logged, as long as it is not too much."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` is called with a line, from whichever thread logs it."""
        self._tell = tell
        self._allowance = float(_AT_ONCE)
        self._at = time.monotonic()

    def listen(self) -> None:
        """Begin, as soon as anybody imports logging: never before, for it is slow to import."""
        after_import("logging", self._begin)

    def _begin(self, logging: ModuleType) -> None:
        with contextlib.suppress(Exception):
            made_before = logging.getLogRecordFactory()

            def made(*args: Any, **kwargs: Any) -> Any:
                record = made_before(*args, **kwargs)
                self._hear(record)
                return record

            logging.setLogRecordFactory(made)

    def _hear(self, record: Any) -> None:
        with contextlib.suppress(Exception):  # whatever it is: the job's logging is what counts
            if record.levelno >= _WARNING and self._is_allowed():
                line = " ".join(f"{record.name}: {record.getMessage()}".split())
                self._tell(mask_text(line)[:LONGEST])

    def _is_allowed(self) -> bool:
        now = time.monotonic()
        self._allowance = min(_AT_ONCE, self._allowance + now - self._at)
        self._at = now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True
