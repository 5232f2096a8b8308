"""A rank's voice in a watched script: its lines, and its link to the monitor of its node."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace

from ...version import VERSION
from .. import collective_log, sight, started_monitor
from ..first_words import MANY_RANKS, hello
from ..going_on import GoingOn
from ..lines import Lines
from ..link import Link
from ..place import Place
from .failing import summary, whole
from .settings import settings
from .variables import monitors_python

INTERRUPTED = 128 + signal.SIGINT  # exit status


class Voice:
    """What one rank says. Its numbers may be better known later: then there is another voice."""

    def __init__(self, place: Place, is_certain: bool, instead_of: int | None = None) -> None:
        """Say hello as the rank at `place`. Not certain: a plain `python train.py`, which is rank 0
        until it joins a group. `instead_of` is the rank that it was before.
        """
        self.place = place
        self.lines = Lines(place, fd=2)
        self.lines.plain = self.lines.plain or os.environ.get("HANGBISECT_PLAIN") == "1"
        every = os.environ.get("HANGBISECT_EVERY_RANK") == "1"
        self.lines.quiet = place.world_size > MANY_RANKS and not every
        self.lines.say(f"hangbisect {VERSION} watches, Python {sys.version.split()[0]}")
        for sentence in place.contradictions:
            self.lines.say(f"Contradiction: {sentence}")
        # `plain`: the number is not known from anything.
        more = {"own": True, "plain": not is_certain, "instead_of": instead_of}
        self.link = Link(place, hello(place, **more), self.lines.say)
        self.link.leaving(None)
        self.link.ends_quietly = True
        self.link.python = monitors_python()
        self.lines.told = lambda text: self.link.tell("line", text=text)
        self.log: collective_log.CollectiveLog | None = None
        self._going_on = GoingOn(self.link)
        self._timer: sight.StackTimer | None = None
        self._stall = 0.0
        self._open()

    def _open(self) -> None:
        found: started_monitor.Reached | OSError
        sight.allow_looks()
        try:  # first of all: it comes up while we read its settings
            found = started_monitor.reach(self.place, python=self.link.python)
        except OSError as error:
            found = error
        known = settings(self.place)
        self._stall = float(known["stall"])
        self.link.open(found, known)
        self.log = collective_log.begin(self.link, self.place.rank)

    # ---- words ---------------------------------------------------------------------------------

    def before_step(self) -> None:
        """A step begins: tell what changed in the environment; stacks, if it lasts too long."""
        self._going_on.environment()
        self.link.listen()
        if self._timer is None and self.link.welcome.get("stacks_file"):
            self._timer = sight.StackTimer(self.link.welcome["stacks_file"])
        if self._timer is not None:
            self._timer.arm(self._stall)

    def after_step(self) -> None:
        """A step has ended."""
        if self._timer is not None:
            self._timer.disarm()

    def of_world(self, size: int) -> None:
        """Speak as one of `size` ranks from now on: the group has as many."""
        self.place = replace(self.place, world_size=size)
        self.lines.place = self.place

    def pulse(self, step: int) -> None:
        """Tell the watch that training goes on."""
        self._going_on.pulse(step)

    def failed(self, error: BaseException) -> None:
        """Nobody caught it: say so, and how it ends."""
        words = summary(error)
        if isinstance(error, KeyboardInterrupt):  # no fault of the script's
            self.link.leaving(INTERRUPTED)
            self.lines.say(f"Interrupted: {words}")
            return
        self.link.leaving(1, words, traceback=whole(error))
        self.lines.say(f"FAILED: {words}")

    def quiet(self) -> None:
        """Past the first training steps: take the log of collectives out."""
        self.link.tell("quiet")
        self.after_step()
        if self.log is not None:
            self.log.uninstall()

    def close(self) -> None:
        """Speak no more as this rank, and say no goodbye."""
        if self.log is not None:
            self.log.uninstall()
        self.link.close()
