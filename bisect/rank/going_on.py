"""What a rank tells of itself while it goes on."""

from __future__ import annotations

import os
import time

from .link import Link

PULSE_EVERY = 1.0  # seconds between two words of a training that goes on


class GoingOn:
    """Tells only what is new."""

    def __init__(self, link: Link) -> None:
        """Nothing has been told yet."""
        self._link = link
        self._environ: dict[str, str] = {}
        self._environ_before: dict[str, str] = {}
        self._pulsed = 0.0

    def pulse(self, step: int) -> None:
        """Tell that training goes on, unless that was told just now."""
        now = time.monotonic()
        if now - self._pulsed >= PULSE_EVERY:
            self._pulsed = now
            self._link.tell("pulse", step=step)

    def environment(self) -> None:
        """Tell what changed in the environment."""
        # /proc/PID/environ never shows what a program sets in itself (measured).
        everything = dict(os.environ)
        if everything == self._environ_before:
            return
        self._environ_before = everything
        from .environment import relevant

        now = relevant(everything)
        changed = {name: value for name, value in now.items() if self._environ.get(name) != value}
        if changed:
            self._link.tell("environ", changed=changed)
        self._environ = now
