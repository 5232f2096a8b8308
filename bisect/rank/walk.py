"""Walks a pipeline on one rank: runs each step, prints its line, waits at its barrier.

`Context` is what a step gets: arguments, products of earlier steps, and functions that print lines
and tell the monitor. A step may be a function of the user's own, named as module:function (--use).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..base import events
from ..base.checkpoints import Checkpoint
from ..base.errors import UsageError
from ..base.place import Place
from .injections import Injection
from .lines import Lines
from .link import Link
from .messages import Heartbeat
from .our_folders import is_own_folder
from .ptrace_permission import StackTimer

if TYPE_CHECKING:
    from ..base.pipeline import Step


def check_module(place: str) -> None:
    """Raise UsageError if there is no module of that name; imports nothing."""
    _look_here_too()
    name = place.partition(":")[0]
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        raise _no_module(name)


def load_function(place: str) -> Callable[..., Any]:
    """Return the function at `module:function`; modules also from the current folder.

    Raises UsageError if there is no such module or function.
    """
    module_name, _, name = place.partition(":")
    _look_here_too()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise
        raise _no_module(module_name) from None
    function = getattr(module, name, None)
    if not callable(function):
        functions = ", ".join(n for n, v in vars(module).items() if callable(v) and n[0] != "_")
        raise UsageError(f"--use: {module_name} has no function {name!r}", f"It has: {functions}")
    return function  # type: ignore[no-any-return]


def takes_one_argument(function: Callable[..., Any], place: str) -> bool:
    """Return whether a function takes one argument, what a step gives; False: it takes none.

    Raises UsageError for one that can be called in neither way.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # of C, and it says nothing
        return True
    for words in ((None,), ()):
        with contextlib.suppress(TypeError):
            signature.bind(*words)
            return bool(words)
    raise UsageError(
        f"--use: {place} takes {signature}, and a step calls it with one argument or with none",
        "Write a function of one argument around it: given.args, given.context, given.<step>.",
    )


def _look_here_too() -> None:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _no_module(name: str) -> UsageError:
    return UsageError(
        f"--use: there is no module {name!r}", f"Looked in {os.getcwd()} and on PYTHONPATH."
    )


_NO_DEADLINE = 120.0  # seconds to wait for the first rank of a node, in a step that has no deadline
_AFTER_A_VERDICT = 30.0  # seconds: by then the watch has said why that rank is late


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
        self._going_on = Heartbeat(link)
        self._phase: str | None = None
        self._call = ""  # the last that the watch was told of

    @property
    def run_dir(self) -> str:
        """The run folder; a rank itself writes nothing in it but its job's logs."""
        self._link.await_welcome()
        folder: str = self._link.places.run_dir or os.path.abspath(
            self.args.run_dir or os.path.join("runs", f"without-a-watch-{self.place.job}")
        )
        return folder

    def say(self, text: str) -> None:
        """Print a line."""
        self._lines.say(text)

    def remark(self, text: str) -> None:
        """Print a line, from any thread. It does not count as progress: the monitor takes it like a
        library's log line.
        """
        self._lines.aside(text)
        self._link.mention(events.Logged(text=text))

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
        self._link.tell(events.Import(module=module, seconds=seconds, version=version))
        self.say(f"Imported {module} in {seconds:.2f} s")
        return imported

    def _announce(self, call: str) -> None:
        if call != self._call:
            self._call = call
            self._link.tell(events.Call(call=call))

    def phase(self, name: str) -> None:
        """Announce that a phase of this checkpoint begins."""
        if name == self._phase:
            return
        self._phase = name
        phase = next(p for p in self.step.phases if p.name == name)
        self.deadline = self.deadline_of(name, phase.deadline)
        self._link.tell(events.Phase(n=self.step.number, name=name))
        self.say(f"Phase {name}")
        self.inject(name)

    def pulse(self, step: int) -> None:
        """Tell the watch that training goes on."""
        self._going_on.pulse(step)

    @contextlib.contextmanager
    def rank0_only(self, what: str) -> Iterator[bool]:
        """Yield True on rank 0, False on the others: once rank 0 is done, or at once where it is on
        another node that the monitor of this one does not hear.
        """
        if self.place.rank == 0:
            yield True
            self._link.tell(events.Did(what=what))
            return
        first = self._first_here() if self._is_on_one_node else (0,)
        if not self._has_done(what, "rank 0", first) and not self._is_on_one_node:
            self.say(f"Rank 0 is on another node, or not heard: going on without it: {what}")
        yield False

    @contextlib.contextmanager
    def once_a_node(self, what: str) -> Iterator[bool]:
        """Yield True on the first rank of each node; on the others yield False once that is
        through, and True if it does not get through in time.
        """
        mine = self.is_first or not self._has_first_done(what)
        yield mine
        if mine:
            self._link.tell(events.Did(what=what))

    @contextlib.contextmanager
    def first_of_node_first(self, what: str) -> Iterator[None]:
        """Let the first rank of each node do the body first; the others do it once that is
        through, or once it has had its time.
        """
        if not self.is_first:
            self._has_first_done(what)
        yield
        if self.is_first:
            self._link.tell(events.Did(what=what))

    @property
    def is_first(self) -> bool:
        """Whether this is the first rank of its node, or the ranks of the node are not known."""
        return self.place.local_rank == 0 or not self.place.counted

    @property
    def _is_on_one_node(self) -> bool:
        return self.place.counted and self.place.local_world_size >= self.place.world_size

    def _has_first_done(self, what: str) -> bool:
        """As _has_done(), for the first rank of this node, rank 0 where there is one node."""
        who = "rank 0" if self._is_on_one_node else "the first rank of this node"
        return self._has_done(what, who, self._first_here())

    def _has_done(self, what: str, who: str, ranks: tuple[int, ...]) -> bool:
        """Wait for a rank; return whether it is through. Nobody waits longer than its step may
        take.
        """
        self.say(f"Waiting for {who}: {what}")
        limit = (self.deadline or _NO_DEADLINE) + _AFTER_A_VERDICT
        answer = self._link.hold(events.Await(what=what, ranks=ranks), limit)
        if answer is None and not self._link.alone:
            self._link.tell(events.WaitsNoMore(what=what))
            self.say(f"Waited {limit:.0f} s for {who}, going on without it: {what}")
        return answer is not None and answer.done

    def _first_here(self) -> tuple[int, ...]:
        """Return the number of the first rank of this node, if this one can know it."""
        place = self.place
        if place.neighbours:
            return (min(place.neighbours),)
        return (place.rank - place.local_rank,) if place.in_order else ()

    # ---- for the walk ----------------------------------------------------------------------

    def begin(self, step: Checkpoint) -> None:
        """A step begins."""
        self.step = step
        self._phase, self._call = None, ""
        self.deadline = self.deadline_of(step.name, step.deadline)
        self._link.tell(events.Enter(n=step.number))
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


def walk_pipeline(steps: Sequence[Step], context: Context, lines: Lines, link: Link) -> None:
    """Do every step up to --until, in order; raises whatever a step raises."""
    timer: StackTimer | None = None
    for step in steps:
        checkpoint = step.checkpoint
        context.begin(checkpoint)
        if timer:
            timer.arm(min(context.deadline or context.args.stall, context.args.stall))
        title = f"CHECKPOINT {checkpoint.number}: {checkpoint.title}"
        if checkpoint.name in context.args.skip:
            title += " (skipped)"
            context.not_exercised.append(f"{checkpoint.title} (skipped)")
        else:
            context.inject(checkpoint.name)
            context.products[checkpoint.name] = _find_function(step, context)(context)
        if timer:
            timer.disarm()
        lines.say(title)
        _pass_barrier(checkpoint.number, context, link)
        link.listen()
        _use_temporary_folder(context, link)
        if timer is None and link.places.stacks_file:
            timer = StackTimer(link.places.stacks_file, shared=False)
        if checkpoint.name == context.args.until:
            lines.say(f"Stopping after {checkpoint.name}, as asked")
            context.not_exercised.append(f"what comes after {checkpoint.name} (--until)")
            break


def _pass_barrier(number: int, context: Context, link: Link) -> None:
    link.tell(events.Reached(n=number))
    if context.args.barriers == "lockstep" and link.lockstep:
        link.hold(events.Arrive(n=number, held=True))
    elif context.args.barriers != "off":
        link.tell(events.Arrive(n=number, held=False))


def _use_temporary_folder(context: Context, link: Link) -> None:
    """Have the job's temporary files where the monitor removes them, however the job ends."""
    if context.step.number == 1:
        if link.places.temporary is None:
            link.await_welcome()
        folder = link.places.temporary or ""
        with contextlib.suppress(OSError):  # it could not be made: TMPDIR is as it was
            if is_own_folder(folder):
                os.environ["TMPDIR"] = folder


def _is_set(args: argparse.Namespace, name: str, value: str) -> bool:
    return getattr(args, name, None) == value


def _find_function(step: Step, context: Context) -> Callable[[Context], Any]:
    """Return the step's function: the user's own (--use), else the pipeline's."""
    place = context.args.use.get(step.checkpoint.name)
    if place is None or (step.given_up and _is_set(context.args, *step.given_up)):
        return step.run
    function = load_function(place)

    def call_replacement(context: Context) -> Any:
        given = SimpleNamespace(args=context.args, context=context, **context.products)
        words = (given,) if takes_one_argument(function, place) else ()
        context.about_to(place.replace(":", "."))
        return function(*words)

    return call_replacement
