"""What a step of a pipeline is given: its arguments, the products before it, and a voice."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from ..checkpoints import Checkpoint
from .going_on import GoingOn
from .injections import Injection
from .lines import Lines
from .link import Link
from .place import Place


class Context:
    """One rank's walk, as its steps see it."""

    def __init__(self, args: argparse.Namespace, place: Place, lines: Lines, link: Link) -> None:
        """The walk sets `step` before each step, and adds to `products` after it."""
        self.args = args
        self.place = place
        self.products: dict[str, Any] = {}
        self.step: Checkpoint
        self.deadline = 0.0  # seconds of the step or phase now under way
        self.not_exercised: list[str] = []
        self._lines = lines
        self._link = link
        self._going_on = GoingOn(link)
        self._phase: str | None = None
        self._call = ""  # the last that the watch was told of

    @property
    def run_dir(self) -> str:
        """The run folder; a rank itself writes nothing in it but its job's logs."""
        self._link.await_welcome()
        folder: str = self._link.welcome.get("run_dir") or os.path.abspath(
            self.args.run_dir or os.path.join("runs", f"without-a-watch-{self.place.job}")
        )
        return folder

    def say(self, text: str) -> None:
        """Print a line."""
        self._lines.say(text)

    def remark(self, text: str) -> None:
        """Print a line, from any thread, that is no sign of life: the watch hears it as it hears
        what a library logs.
        """
        self._lines.aside(text)
        self._link.mention("logged", text=text)

    def about_to(self, call: str, detail: str = "", printed: bool = True) -> None:
        """Announce a call that can block, by its dotted public name; not `printed`, to the watch
        alone.
        """
        self._announce(call)
        (self.say if printed else self._lines.told)(f"About to call {call}{detail}...")

    def imports(self, module: str) -> Any:
        """Import `module`, announced and timed, and return it."""
        if module in sys.modules:
            return sys.modules[module]
        self._announce(f"import {module}")
        self.say(f"About to import {module}...")
        began = time.monotonic()
        imported = importlib.import_module(module)
        seconds = time.monotonic() - began
        version = getattr(imported, "__version__", None)
        self._link.tell("import", module=module, seconds=seconds, version=version)
        self.say(f"Imported {module} in {seconds:.2f} s")
        return imported

    def _announce(self, call: str) -> None:
        if call != self._call:
            self._call = call
            self._link.tell("call", call=call)

    def phase(self, name: str) -> None:
        """Announce that a phase of this checkpoint begins."""
        if name == self._phase:
            return
        self._phase = name
        phase = next(p for p in self.step.phases if p.name == name)
        self.deadline = self.deadline_of(name, phase.deadline)
        self._link.tell("phase", n=self.step.number, name=name)
        self.say(f"Phase {name}")
        self.inject(name)

    def pulse(self, step: int) -> None:
        """Tell the watch that training goes on."""
        self._going_on.pulse(step)

    @contextlib.contextmanager
    def rank0_only(self, what: str) -> Iterator[bool]:
        """Yield True on rank 0; on the others yield False once rank 0 is through."""
        if self.place.rank == 0:
            yield True
            self._link.tell("did", what=what)
        else:
            self._wait_for_rank0(what)
            yield False

    @contextlib.contextmanager
    def rank0_first(self, what: str) -> Iterator[None]:
        """Let rank 0 do the body first; the others do it once rank 0 is through."""
        if self.place.rank == 0:
            yield
            self._link.tell("did", what=what)
        else:
            self._wait_for_rank0(what)
            yield

    def _wait_for_rank0(self, what: str) -> None:
        if self.place.world_size > 1:
            self.say(f"Waiting for rank 0: {what}")
            self._link.hold("await", what=what, ranks=[0])

    # ---- for the walk ----------------------------------------------------------------------

    def begin(self, step: Checkpoint) -> None:
        """A step begins."""
        self.step = step
        self._phase, self._call = None, ""
        self.deadline = self.deadline_of(step.name, step.deadline)
        self._link.tell("enter", n=step.number)
        self._going_on.environment()

    def deadline_of(self, name: str, default: float | None) -> float:
        """Return the deadline of a step or phase: --timeout's, else its own; 0.0 for none."""
        timeouts: dict[str, float] = self.args.timeout
        names = [name, *([self.step.name, ""] if default is not None else [])]
        return next((timeouts[n] for n in names if n in timeouts), default or 0.0)

    def inject(self, place: str) -> None:
        """Make it hang on purpose, if that was asked for here."""
        for injection in self.args.inject:
            if isinstance(injection, Injection) and injection.matches(place, self.place.rank):
                self.say(f"Injecting {injection.kind} at {place}")
                injection.run(self)
