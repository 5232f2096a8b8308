"""What a rank in a watched script says: its lines, its link to the monitor of its node with the
settings that this must know, and the error that the script does not catch, which is noted for
the goodbye and printed as ever.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from ...base.error_guard import ignore_our_errors, raise_if_of_the_job
from ...base.events import Bye, Line, Quiet, StartsRanks, World
from ...base.launcher_env import is_on_one_machine
from ...base.loading import limit_delay
from ...base.place import Place, list_above
from ...base.variables import KEEP_WATCHING_VARIABLE
from ...base.version import VERSION
from .. import collective_log, monitor_connection, ptrace_permission
from ..collective_records import StepPace
from ..lines import Lines
from ..link import Link
from ..messages import MANY_RANKS, Heartbeat, make_hello, make_watch_settings
from ..tracebacks import format_traceback, summarize_error
from .command_environment import monitors_python


def read_settings(place: Place) -> dict[str, Any]:
    """Return the settings, as HANGBISECT_NAME variables have them.

    Raises UsageError for a value that cannot be read.
    """
    from ...base.argument_types import Parser
    from ..watch_options import add_watch_options, read_environment_words

    parser = Parser()
    add_watch_options(parser)
    args = parser.parse_all(read_environment_words(parser, os.environ))
    return {
        **make_watch_settings(args, place, os.environ),
        "own": True,
        "keep_watching": os.environ.get(KEEP_WATCHING_VARIABLE) == "1",
        "pipeline": "",
        "until": None,
        "barriers": "off",
        "on_hang": args.on_hang or "report",
        # The job's stdout is its own: the process around the launcher prints what --json asks for.
        "json": False,
        "sum_up": False,
        "keep": [],
        "outcome_pipe": None,
    }


HearError = Callable[[BaseException], None]


def hear_uncaught_error(hear: HearError) -> None:
    """Call hear(error) before the hook that is there now prints an error that nobody caught."""
    hook = sys.excepthook

    def heard(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        with ignore_our_errors():
            hear(error)
        hook(kind, error, traceback)
        if isinstance(error, KeyboardInterrupt):
            end_as_interrupted()

    sys.excepthook = heard


def end_as_interrupted() -> None:
    """Have Python end itself by SIGINT, as it does after an interruption that nobody caught.

    It remembers how the last text ended that was run (run_eval_code_obj, pythonrun.c), and whatever
    of ours, or of a hook's, has called eval() or exec() since was such a text.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


INTERRUPTED = 128 + signal.SIGINT  # exit status


class RankOutput:
    """What one rank says. Its numbers may be better known later: then there is another voice."""

    def __init__(self, place: Place, is_certain: bool, instead_of: int | None = None) -> None:
        """Say hello as the rank at `place`. Not certain: a plain `python train.py`, which is rank 0
        until it joins a group. `instead_of` is the rank that it was before.
        """
        self.place = place
        self.lines = Lines(place, fd=2)
        self.lines.plain = self.lines.plain or os.environ.get("HANGBISECT_PLAIN") == "1"
        every = os.environ.get("HANGBISECT_EVERY_RANK") == "1"
        self.lines.waits_once = True
        self.lines.quiet = place.world_size > MANY_RANKS and not every
        self.lines.say(f"hangbisect {VERSION} watches, Python {sys.version.split()[0]}")
        for sentence in place.contradictions:
            self.lines.say(f"Contradiction: {sentence}")
        # `plain`: the number is not known from anything.
        more: dict[str, Any] = {"own": True, "plain": not is_certain, "instead_of": instead_of}
        if place.launcher is None:
            more["above"] = list_above()
        self.link = Link(place, make_hello(place, **more), self.lines.say)
        self.link.leaving(Bye(status=None))
        self.link.ends_quietly = True
        self.lines.told = lambda text: self.link.tell(Line(text=text))
        self.log: collective_log.CollectiveLog | None = None
        self._going_on = Heartbeat(self.link)
        self._timer: ptrace_permission.StackTimer | None = None
        self._stall = 0.0
        self._is_interrupted = False
        atexit.register(self._after_goodbye)  # before the link's goodbye is registered
        self._open()

    def _open(self) -> None:
        known = read_settings(self.place)
        self._stall = float(known["stall"])
        self.link.python = monitors_python(limit_delay(self._stall, known["limit"]))
        found: monitor_connection.MonitorConnection | OSError
        try:
            found = monitor_connection.connect_to_monitor(self.place, python=self.link.python)
        except OSError as error:
            raise_if_of_the_job(error)
            found = error
        self.link.open(found, known)
        self.log = collective_log.begin_collective_log(self.link, self.place.rank)

    # ---- words ---------------------------------------------------------------------------------

    def before_step(self) -> None:
        """A step begins: tell what changed in the environment; stacks, if it lasts too long."""
        self._going_on.environment()
        self.link.listen()
        if self._timer is None and self.link.places.stacks_file:
            self._timer = ptrace_permission.StackTimer(self.link.places.stacks_file, shared=True)
        if self._timer is not None:
            self._timer.arm(self._stall)

    def after_step(self) -> None:
        """A step has ended."""
        if self._timer is not None:
            self._timer.disarm()

    def of_world(self, size: int) -> None:
        """Speak as one of `size` ranks from now on: the group has as many."""
        is_elsewhere = "MASTER_ADDR" in os.environ and not is_on_one_machine(os.environ)
        self.link.tell(World(size=size if is_elsewhere else self.place.world_size))
        self.place = replace(self.place, world_size=size)
        self.lines.place = self.place

    def pulse(self, step: int) -> None:
        """Tell the watch that training goes on."""
        self._going_on.pulse(step)

    def failed(self, error: BaseException) -> None:
        """Nobody caught it: say so, and how it ends."""
        words = summarize_error(error)
        if isinstance(error, KeyboardInterrupt):  # no fault of the script's
            self._is_interrupted = True
            self.link.leaving(Bye(status=INTERRUPTED))
            self.lines.say(f"Interrupted: {words}")
            return
        self.link.leaving(Bye(status=1, error=words, traceback=format_traceback(error)))
        self.lines.say(f"FAILED: {words}")

    def _after_goodbye(self) -> None:
        if self._is_interrupted:
            end_as_interrupted()

    def starts_ranks(self) -> None:
        """Tell who watches the command that this process is none of its ranks."""
        self.link.tell(StartsRanks())

    def quiet(self, pace: StepPace | None) -> Callable[[], None] | None:
        """Past the first training steps, whose `pace` this is: tell no more, but for the log of
        collectives where there is a process group, and what is to be called at the end of each
        further step, which is returned; None where no monitor could read it.
        """
        self.link.tell(Quiet())
        self.after_step()
        if self._timer is not None:
            self._timer.forget()
        if self.log is None:
            return None
        self.log.go_on_with_groups()
        return self.log.count_steps(pace)

    def close(self) -> None:
        """Speak no more as this rank, and say no goodbye."""
        if self.log is not None:
            self.log.uninstall()
        self.link.close()
