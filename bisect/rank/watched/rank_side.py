"""The rank side in one process: what is put around known calls, and who speaks of them."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..after_import import after_import, before_import, wait_no_more
from ..place import Place, find_place
from ..torch_functions import Undo
from .captured import listen_to
from .names import CLAIM_VARIABLE, KEEP_WATCHING_VARIABLE, STEADY_VARIABLE
from .own_functions import as_defined
from .role import Claim
from .row import Row
from .steps import Steps
from .wrapping import put_around

if TYPE_CHECKING:
    from .voice import Voice

_RANK = __package__.rpartition(".")[0]
PROCESS_GROUP = "process_group"  # the step in which a process may become a rank


class RankSide:
    """A process as the watch sees it: silent until it is a rank."""

    def __init__(self, is_helper: bool) -> None:
        """A helper of a rank is silent, unless it joins a process group."""
        self.steps: Steps | None = None
        self.voice: Voice | None = None
        self.pid = os.getpid()  # of the process that may speak
        self._is_helper = is_helper
        self._undo: list[Undo] = []
        self.waiting: list[Callable[..., None]] = []  # for modules
        self._certain = False
        self.is_over = False
        self._forked = False
        os.register_at_fork(after_in_child=self._in_child)

    # ---- what is put around known calls --------------------------------------------------------

    def install(self, rows: Iterable[Row]) -> None:
        """Put a step around each call of `rows`, as soon as its module is imported."""
        by_module: dict[str, list[Row]] = {}
        for row in rows:
            if not row.attribute:
                self._around_import(row)
            else:
                by_module.setdefault(row.module, []).append(row)
        for module, calls in by_module.items():
            self._after_import(module, functools.partial(self._put, calls))

    def install_own(self, rows: Sequence[Row]) -> None:
        """Put a step around each function that the user named; say so where there is none."""
        for row in rows:
            self._after_import(row.module, functools.partial(self._put_own, row))
        if rows:
            atexit.register(self._say_unused, rows)

    def _say_unused(self, rows: Sequence[Row]) -> None:
        if self.voice is not None and os.getpid() == self.pid:
            for row in rows:
                if row.module not in sys.modules:
                    self.voice.lines.say(f"--step {row.where}: {row.module} was never imported")

    def _put_own(self, row: Row, module: ModuleType) -> None:
        with contextlib.suppress(Exception):
            found, before = as_defined(row, module), len(self._undo)
            if isinstance(found, Row):
                self._put([found], module)
                found = "" if len(self._undo) > before else f"--step {row.where}: it is no function"
            if found and not self.is_over and self.voice is not None:
                self.voice.lines.say(found)

    def install_captures(self, classes: Iterable[tuple[str, str]]) -> None:
        """Have what is made of each class (module, name) listen to `hangbisect capture`."""
        for module, name in classes:
            self._after_import(module, functools.partial(self._capture, name))

    def _capture(self, name: str, module: ModuleType) -> None:
        with contextlib.suppress(Exception):
            undo = None if self.is_over else listen_to(module, name, self._say)
            if undo is not None:
                self._undo.append(undo)

    def _say(self, sentence: str) -> None:
        if self.voice is not None and os.getpid() == self.pid:
            self.voice.lines.say(sentence)

    def _put(self, rows: Sequence[Row], module: ModuleType) -> None:
        if self.is_over:
            return
        for row in rows:
            with contextlib.suppress(Exception):  # another version may have it differently
                begin = functools.partial(self._begin, row)
                undo = put_around(module, row.attribute, begin)
                if undo is not None:
                    self._undo.append(undo)

    def _around_import(self, row: Row) -> None:
        begun: list[tuple[Callable[[BaseException | None], None] | None, float]] = []

        def before() -> None:
            begun.append((self.begin(row), time.monotonic()))

        def failed() -> None:
            end = begun[-1][0]
            if end is not None:
                end(sys.exc_info()[1])

        def after(module: ModuleType) -> None:
            end, at = begun[-1] if begun else (None, 0.0)
            if end is None or self.voice is None:
                return
            end(None)
            with contextlib.suppress(Exception):
                version = getattr(module, "__version__", None)
                seconds = time.monotonic() - at
                self.voice.link.tell(
                    "import", module=row.module, seconds=seconds, version=version and str(version)
                )

        self.waiting.append(before)
        before_import(row.module, before, failed)
        self._after_import(row.module, after)

    def _after_import(self, module: str, then: Callable[[ModuleType], None]) -> None:
        self.waiting.append(then)
        after_import(module, then)

    # ---- the way of every call -----------------------------------------------------------------

    def _begin(
        self, row: Row, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[BaseException | None], None] | None:
        if self.is_over:
            return None
        if row.step == PROCESS_GROUP:
            self._join(args, kwargs)
        if self.steps is None or (row.when is not None and not _is(row, args)):
            return None
        return self.begin(row)

    def begin(self, row: Row) -> Callable[[BaseException | None], None] | None:
        """A step begins; return what is to be called at its end, None if it is none. Raises
        nothing.
        """
        steps = self.steps
        if steps is None or self.is_over:
            return None
        try:
            step = steps.begin(row)
        except Exception:  # whatever it is: the script's call is what counts
            return None
        if step is None:
            return None
        begun = step

        def end(error: BaseException | None) -> None:
            with contextlib.suppress(Exception):
                steps.end(begun, error)

        return end

    # ---- who speaks ----------------------------------------------------------------------------

    def speak(self, place: Place, trains: bool, is_certain: bool) -> None:
        """Say hello as the rank at `place`, or another one than before."""
        from .voice import Voice

        before = self.voice
        if before is not None:
            before.close()
        instead_of = before.place.rank if before is not None and not self._forked else None
        self._forked, self._certain, self.pid = False, is_certain, os.getpid()
        self.voice = Voice(place, is_certain, instead_of)
        open_before = self.steps.open if self.steps is not None else []
        self.steps = Steps(self.voice.link.tell, self.voice.lines.say)
        self.steps.go_on_with(open_before)
        self.steps.changed = self.voice.before_step
        self.steps.ended = self._ended
        self.claim(trains)
        if (steered := sys.modules.get(f"{_RANK}.steered")) is not None:
            link = self.voice.link
            steered.TOLD.through(lambda name: link.tell("toggle", name=name))

    def claim(self, trains: bool) -> None:
        """Let our children know that this rank is taken."""
        if self.voice is not None:
            place = self.voice.place
            mine = Claim(place.job, place.rank, os.getpid(), trains, self._certain)
            os.environ[CLAIM_VARIABLE] = str(mine)

    def _join(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A group is joined: where nobody said which rank this is, it is the one that joins."""
        if self._certain or not (self._is_helper or self._forked or self.voice is not None):
            return
        try:
            from .joining import numbers

            found = numbers(args, kwargs, os.environ)
            if found is None:
                return
            if self.voice is not None and self.voice.place.rank == found.rank:
                self.voice.of_world(found.world_size)
                self._certain = True
                self.claim(trains=True)
                return
            place = find_place()
            local_world = place.local_world_size if place.launcher else found.world_size
            local = found.rank if local_world == found.world_size else place.local_rank
            place = replace(
                place,
                rank=found.rank,
                local_rank=local,
                world_size=found.world_size,
                local_world_size=max(local_world, local + 1),
                neighbours=(),
            )
            if self._is_helper:
                self._put_the_rest()
            self._is_helper = False
            self.speak(place, trains=True, is_certain=True)
        except Exception:  # whatever it is: the script's call is what counts
            return

    def _put_the_rest(self) -> None:
        from .table import TABLE

        self.install(row for row in TABLE if row.step != PROCESS_GROUP)
        self.count_steps()

    def _in_child(self) -> None:
        # A forked child is no rank, unless it joins a group as one, and its parent is not one for
        # certain. Its parent's link is closed in it (link.py).
        self._forked = not self._certain
        self.steps, self.voice, self._is_helper = None, None, False
        if (steered := sys.modules.get(f"{_RANK}.steered")) is not None:
            steered.TOLD.through(None)

    # ---- the end of the start ------------------------------------------------------------------

    def count_steps(self) -> None:
        """Count training steps from when optimizers are there: after so many all is over."""
        from .steady import STEADY, Steady

        text = os.environ.get(STEADY_VARIABLE, "")
        limit = int(text) if text.isascii() and text.isdigit() else STEADY
        steady = Steady(self, limit)
        self._after_import("torch.optim.optimizer", steady.listen)

    def _ended(self, row: Row) -> None:
        if self.voice is not None and self.steps is not None and not self.steps.open:
            self.voice.after_step()
        if row.ends_start:
            self.over()

    def over(self) -> None:
        """The script has started: take everything out, and be quiet; unless it is to be watched on
        (--keep-watching).
        """
        if os.environ.get(KEEP_WATCHING_VARIABLE) == "1" or self.is_over or self.steps is None:
            return
        self.is_over = True
        wait_no_more(self.waiting)
        if self.voice is not None:
            with contextlib.suppress(Exception):
                self.voice.quiet()
        while self._undo:
            with contextlib.suppress(Exception):
                self._undo.pop()()


def _is(row: Row, args: tuple[Any, ...]) -> bool:
    try:
        return row.when is not None and row.when(args)
    except Exception:
        return False
