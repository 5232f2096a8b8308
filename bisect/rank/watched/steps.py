"""The steps that this rank is in (begun, told, ended), and the training steps that its optimizers
make: after a few of them the start is over.

A loop over the same call (a file each, a shard each) is said a few times and told some more:
MOST_LINES covers a start-up that loads a tokenizer and a model or two, MOST_MESSAGES one that
loads the shards of a large model one by one. What comes after that costs nothing and is watched
as what lies between two steps.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...base.checkpoints import STARTUP_BY_NAME
from ...base.error_guard import ignore_our_errors
from ...base.events import Begin, End, Event
from ...base.lazy_dataclass import dataclass
from ...base.masking import mask_ends
from ..function_patching import exclude_from_compile
from ..tracebacks import summarize_error
from .known_calls import FIRST_STEP, KnownCall

if TYPE_CHECKING:
    from .rank_side import RankSide


_LONGEST_ERROR = 4_000  # characters
MOST_LINES = 3  # lines for a step of one name
MOST_MESSAGES = 50  # messages for it
Tell = Callable[[Event], None]


@dataclass(frozen=True)
class BegunCall:
    """A step that has begun."""

    row: KnownCall
    k: int  # its occurrence, from 1
    said: bool


class Steps:
    """The steps of this process's main thread."""

    def __init__(self, tell: Tell, say: Callable[[str], None]) -> None:
        """`tell` the monitor, `say` a line."""
        self.open: list[BegunCall] = []
        self.changed: Callable[[], None] = lambda: None  # called before a step begins
        self.ended: Callable[[KnownCall], None] = lambda row: None  # called after one ended
        self._tell = tell
        self._say = say
        self._counts: dict[str, int] = {}
        self._process = os.getpid()
        self._thread = _thread.get_ident()

    def begin(self, row: KnownCall) -> BegunCall | None:
        """A call begins; return its step, None where it is none.

        None are those of other threads and of forked children, a step that is open already under
        its name, what torch.distributed consists of, and a call that has been told often enough.
        """
        if row.once and row.step in self._counts:  # first of all: it is on the way of each batch
            return None
        if _thread.get_ident() != self._thread or os.getpid() != self._process:
            return None
        if any(one.row.step == row.step for one in self.open):
            return None
        if row.of_torchs_groups and any(one.row.of_torchs_groups for one in self.open):
            return None
        k = self._counts.get(row.step, 0) + 1
        if k > MOST_MESSAGES:
            return None
        self._counts[row.step] = k
        self.changed()
        step = BegunCall(row, k, k <= MOST_LINES)
        self._tell(make_begin(row, k, len(self.open)))
        self.open.append(step)
        if step.said:
            self._say(f"About to {_format_begun(row)}...")
        return step

    def go_on_with(self, open_before: Sequence[BegunCall]) -> None:
        """Report steps that are open already, because the receiver does not know them."""
        for step in open_before:
            self._counts[step.row.step] = step.k
            self._tell(make_begin(step.row, step.k, len(self.open)))
            self.open.append(step)

    def end(self, step: BegunCall, error: BaseException | None) -> None:
        """End a step, with all that was begun inside it."""
        if step not in self.open or os.getpid() != self._process:
            return
        del self.open[self.open.index(step) :]
        words = None
        if isinstance(error, Exception):
            words = mask_ends(summarize_error(error), _LONGEST_ERROR)
        self._tell(End(step=step.row.step, k=step.k, failed=error is not None, error=words))
        if error is not None:
            if step.said:
                self._say(f"{step.row.call} raised {type(error).__name__}")
        elif step.said:
            self._say(format_done(step.row, step.k))
        self.ended(step.row)


def make_begin(row: KnownCall, k: int, depth: int) -> Begin:
    """Return the message on a step that begins, the `k`-th of its name, with `depth`
    steps open around it.
    """
    return Begin(
        step=row.step,
        k=k,
        depth=depth,
        call=row.call if row.where else "",
        title=row.title,
        component=row.component,
        deadline=row.deadline,
        checkpoint=row.checkpoint,
        phase=row.phase,
    )


def format_done(row: KnownCall, k: int) -> str:
    """Return the line that says that a step is done."""
    name, title = row.step, row.title
    if row.checkpoint and not row.phase:
        corresponding = STARTUP_BY_NAME[row.checkpoint]
        name, title = str(corresponding.number), corresponding.title
    return f"CHECKPOINT {name}: {title}" + (f" (no. {k})" if k > 1 else "")


def _format_begun(row: KnownCall) -> str:
    if not row.where:  # a step that the script names itself
        return f"begin {row.call}"
    return row.call if row.call.startswith("import ") else f"call {row.call}"


class StepCounter:
    """Tells the first step, the pulse of those that follow, and when there were enough: from then
    on each step only leaves its time in memory (RankSide.pulse).
    """

    def __init__(
        self, side: RankSide, limit: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """It is over after `limit` steps of one optimizer."""
        self._side = side
        self._limit = limit
        self._clock = clock
        self._last: float | None = None  # when a step ended
        self._counts: dict[int, int] = {}  # by the optimizer's id
        self._first: Any = None
        # What is called before and after each step. Torch's hooks stay the same: it goes through
        # them as one of ours runs, and may not find their number changed.
        self._act_before: Callable[[], None] = self._before
        self._act_after: Callable[[Any], None] = self._after

    def listen(self, module: Any) -> None:
        """Hear of every step of every optimizer (torch.optim's own hooks)."""

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            with ignore_our_errors():
                self._act_before()

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            with ignore_our_errors():
                self._act_after(optimizer)

        with ignore_our_errors():
            module.register_optimizer_step_pre_hook(exclude_from_compile(before))
            module.register_optimizer_step_post_hook(exclude_from_compile(after))

    def _before(self) -> None:
        if not self._counts and self._first is None:
            self._first = self._side.begin(FIRST_STEP)

    def _after(self, optimizer: Any) -> None:
        if self._first is not None:
            self._first(None)
            self._first = None
        self._keep_pace()
        count = self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        if self._side.voice is not None and self._side.steps is not None:
            self._side.voice.pulse(count)
            if count == self._limit:
                self._side.over()
        if self._side.is_over:
            self._leave_pulse()

    def _keep_pace(self) -> None:
        from ..collective_records import StepPace  # not at the top: few processes train

        now, last, pace = self._clock(), self._last, self._side.pace
        self._last = now
        if last is not None:
            self._side.pace = StepPace(now, max(now - last, pace.longest if pace else 0.0))

    def _leave_pulse(self) -> None:
        """Hear of no more steps, but that one has ended."""
        pulse = self._side.pulse
        self._act_before = _do_nothing
        self._act_after = (lambda optimizer: pulse()) if pulse is not None else _do_nothing


def _do_nothing(optimizer: Any = None) -> None:
    pass
