"""The rank side in one process: the role that it takes, what is put around known calls, and who
speaks of them.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...base.error_guard import ignore_our_errors, raise_if_of_the_job
from ...base.events import Import, Toggle
from ...base.launcher_env import is_on_one_machine, number
from ...base.launchers import RANK_VARIABLES
from ...base.place import (
    FOLDER_VARIABLE,
    JOB_VARIABLE,
    Place,
    find_place,
    job_of_this_process,
    parent_of,
)
from ...base.variables import (
    CAPTURE_VARIABLE,
    CLAIM_VARIABLE,
    FRONT_VARIABLE,
    KEEP_WATCHING_VARIABLE,
    STEADY,
    STEADY_VARIABLE,
    STEP_VARIABLE,
)
from ..after_import import after_import, before_import, wait_no_more
from ..function_patching import Undo, find_function, list_positional_parameters, patch_with_step
from .failed_targets import note_failed_targets, note_failure
from .known_calls import KNOWN_CALLS, KnownCall
from .process_role import (
    Claim,
    GroupNumbers,
    ProcessFacts,
    Role,
    decide_role,
    is_started_by_script,
    read_claim,
    read_group_numbers,
)
from .steps import StepCounter, Steps
from .user_functions import capture_class, find_definition, parse_classes, parse_steps

if TYPE_CHECKING:
    from ..collective_records import StepPace
    from .rank_output import RankOutput


_RANK = __package__.rpartition(".")[0]
# What starts ranks inside of a script (torch.distributed.launcher.api.elastic_launch): its method.
_AGENT = ("torch.distributed.elastic.agent.server.api", "SimpleElasticAgent.run")
PROCESS_GROUP = "process_group"  # the step in which a process may become a rank


class RankSide:
    """A process as the watch sees it: silent until it is a rank."""

    def __init__(self, is_helper: bool) -> None:
        """A helper of a rank is silent, unless it joins a process group."""
        self.steps: Steps | None = None
        self.voice: RankOutput | None = None
        self.pid = os.getpid()  # of the process that may speak
        self._is_helper = is_helper
        self._undo: list[Undo] = []
        self.waiting: list[Callable[..., None]] = []  # for modules
        self.is_certain = False
        self.is_over = False
        self.pace: StepPace | None = None  # of the first training steps
        self.pulse: Callable[[], None] | None = None  # to be called after each step from then on
        self._forked = False
        self._only_starts = False  # ranks, by an agent: what it forks may be one
        os.register_at_fork(after_in_child=self._in_child)

    # ---- what is put around known calls --------------------------------------------------------

    def install(self, rows: Iterable[KnownCall]) -> None:
        """Put a step around each call of `rows`, as soon as its module is imported."""
        by_module: dict[str, list[KnownCall]] = {}
        for row in rows:
            if not row.attribute:
                self._around_import(row)
            else:
                by_module.setdefault(row.module, []).append(row)
        for module, calls in by_module.items():
            self._after_import(module, functools.partial(self._put, calls))

    def install_own(self, rows: Sequence[KnownCall]) -> None:
        """Put a step around each function that the user named; say so where there is none."""
        for row in rows:
            self._after_import(row.module, functools.partial(self._put_own, row))
        if rows:
            atexit.register(self._say_unused, rows)

    def _say_unused(self, rows: Sequence[KnownCall]) -> None:
        if self.voice is not None and os.getpid() == self.pid:
            for row in rows:
                if row.module not in sys.modules:
                    self.voice.lines.say(f"--step {row.where}: {row.module} was never imported")

    def _put_own(self, row: KnownCall, module: ModuleType) -> None:
        with ignore_our_errors():
            found, before = find_definition(row, module), len(self._undo)
            if isinstance(found, KnownCall):
                self._put([found], module)
                found = "" if len(self._undo) > before else f"--step {row.where}: it is no function"
            if found and not self.is_over and self.voice is not None:
                self.voice.lines.say(found)

    def install_captures(self, classes: Iterable[tuple[str, str]]) -> None:
        """Have what is made of each class (module, name) listen to `hangbisect capture`."""
        for module, name in classes:
            self._after_import(module, functools.partial(self._capture, name))

    def _capture(self, name: str, module: ModuleType) -> None:
        with ignore_our_errors():
            undo = None if self.is_over else capture_class(module, name, self._say)
            if undo is not None:
                self._undo.append(undo)

    def _say(self, sentence: str) -> None:
        if self.voice is not None and os.getpid() == self.pid:
            self.voice.lines.say(sentence)

    def _put(self, rows: Sequence[KnownCall], module: ModuleType) -> None:
        if self.is_over:
            return
        for row in rows:
            with ignore_our_errors():  # another version may have it differently
                begin = functools.partial(self._begin, row)
                undo = patch_with_step(module, row.attribute, begin)
                if undo is not None:
                    self._undo.append(undo)

    def _around_import(self, row: KnownCall) -> None:
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
            with ignore_our_errors():
                version = getattr(module, "__version__", None)
                seconds = time.monotonic() - at
                version = version and str(version)
                self.voice.link.tell(Import(module=row.module, seconds=seconds, version=version))

        self.waiting.append(before)
        before_import(row.module, before, failed)
        self._after_import(row.module, after)

    def _after_import(self, module: str, then: Callable[[ModuleType], None]) -> None:
        self.waiting.append(then)
        after_import(module, then)

    # ---- the way of every call -----------------------------------------------------------------

    def _begin(
        self, row: KnownCall, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[BaseException | None], None] | None:
        if self.is_over:
            return None
        if row.step == PROCESS_GROUP:
            self._join(read_group_numbers(args, kwargs, os.environ))
        elif row.numbers is not None:
            self._join(self._read_numbers(row, args, kwargs))
        if self.steps is None or row.lasts:
            return None
        if row.when is not None and not _is_step(row, args, kwargs):
            return None
        return self.begin(row)

    def begin(self, row: KnownCall) -> Callable[[BaseException | None], None] | None:
        """A step begins; return what is to be called at its end, None if it is none. Raises
        nothing.
        """
        steps = self.steps
        if steps is None or self.is_over:
            return None
        try:
            step = steps.begin(row)
        except Exception as error:  # whatever it is: the script's call is what counts
            raise_if_of_the_job(error)
            return None
        if step is None:
            return None
        begun = step

        def end(error: BaseException | None) -> None:
            with ignore_our_errors():
                steps.end(begun, error)

        return end

    # ---- who speaks ----------------------------------------------------------------------------

    def speak(self, place: Place, trains: bool, is_certain: bool) -> None:
        """Say hello as the rank at `place`, or another one than before."""
        from .rank_output import RankOutput

        before = self.voice
        if before is not None:
            before.close()
        instead_of = before.place.rank if before is not None and not self._forked else None
        self._forked, self.is_certain, self.pid = False, is_certain, os.getpid()
        self.voice = RankOutput(place, is_certain, instead_of)
        open_before = self.steps.open if self.steps is not None else []
        self.steps = Steps(self.voice.link.tell, self.voice.lines.say)
        self.steps.go_on_with(open_before)
        self.steps.changed = self.voice.before_step
        self.steps.ended = self._ended
        self.claim(trains)
        if (patches := sys.modules.get(f"{_RANK}.patches")) is not None:
            link = self.voice.link
            patches.QUEUE.through(lambda name: link.tell(Toggle(name=name)))

    def claim(self, trains: bool) -> None:
        """Let our children know that this rank is taken."""
        if self.voice is not None:
            place = self.voice.place
            mine = Claim(place.job, place.rank, os.getpid(), trains, self.is_certain)
            os.environ[CLAIM_VARIABLE] = str(mine)

    def _read_numbers(
        self, row: KnownCall, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> GroupNumbers | None:
        """Return which rank this process becomes by a call that makes it one."""
        try:
            function = find_function(sys.modules[row.module], row.attribute)
            names = list_positional_parameters(function)
            return row.numbers({**dict(zip(names, args)), **kwargs}) if row.numbers else None
        except Exception as error:  # another version may have it differently
            raise_if_of_the_job(error)
            return None

    def _join(self, found: GroupNumbers | None) -> None:
        """A group is joined, or is to be: if the rank's number was not known, it is the one that
        joins.
        """
        if found is None or self.is_certain:
            return
        if not (self._is_helper or self._forked or self.voice is not None):
            return
        try:
            if self.voice is not None and self.voice.place.rank == found.rank:
                self.voice.of_world(found.world_size)
                self.is_certain = True
                self.claim(trains=True)
                return
            place = find_place()
            local_world = place.local_world_size if place.launcher else found.world_size
            counted = place.counted if place.launcher else is_on_one_machine(os.environ)
            local = found.rank if local_world == found.world_size else place.local_rank
            if not counted and (named := number(os.environ, "LOCAL_RANK")) is not None:
                local = named
            place = replace(
                place,
                rank=found.rank,
                local_rank=local,
                world_size=found.world_size,
                local_world_size=max(local_world, local + 1),
                neighbours=(),
                counted=counted,
            )
            if self._is_helper:
                self._put_the_rest()
            self._is_helper = False
            self.speak(place, trains=True, is_certain=True)
        except Exception as error:  # whatever it is: the script's call is what counts
            raise_if_of_the_job(error)

    def _put_the_rest(self) -> None:
        # What an actor asks of Ray is most often Ray's own business.
        self.install(
            row
            for row in KNOWN_CALLS
            if not _makes_rank(row) and row.module.partition(".")[0] != "ray"
        )
        self.count_steps()

    def _in_child(self) -> None:
        # A forked child is no rank, unless it joins a group as one, and its parent is not one for
        # certain. Its parent's link is closed in it (link.py).
        self._forked = not self.is_certain
        if self._only_starts:
            self._only_starts = self.is_over = False
            self.pulse = None
        self.steps, self.voice, self._is_helper = None, None, False
        if (patches := sys.modules.get(f"{_RANK}.patches")) is not None:
            patches.QUEUE.through(None)

    # ---- who only starts ranks -----------------------------------------------------------------

    def listen_to_agent(self) -> None:
        """Be quiet from when an agent of torch's elastic runs here: it starts the ranks, and this
        process is none of them. What it forks is watched if it joins a group, so all steps stay.
        """
        module, method = _AGENT
        self._after_import(module, functools.partial(self._put_around_agent, method))

    def _put_around_agent(self, method: str, module: ModuleType) -> None:
        with ignore_our_errors():
            undo = None if self.is_over else patch_with_step(module, method, self._starts_ranks)
            if undo is not None:
                self._undo.append(undo)

    def _starts_ranks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.is_certain and os.getpid() == self.pid and not self.is_over:
            self.is_over = self._only_starts = True
            if self.voice is not None:
                with ignore_our_errors():
                    self.voice.starts_ranks()
                    self.pulse = self.voice.quiet(self.pace)

    # ---- the end of the start ------------------------------------------------------------------

    def count_steps(self) -> None:
        """Count training steps from when optimizers are there: after so many all is over."""
        text = os.environ.get(STEADY_VARIABLE, "")
        limit = int(text) if text.isascii() and text.isdigit() else STEADY
        steady = StepCounter(self, limit)
        self._after_import("torch.optim.optimizer", steady.listen)

    def _ended(self, row: KnownCall) -> None:
        if self.voice is not None and self.steps is not None and not self.steps.open:
            self.voice.after_step()
        if row.ends_start:
            self.over()

    def over(self) -> None:
        """The script has started: take all steps out, and be quiet; unless it is to be watched on
        (--keep-watching). Collectives are logged on, and training steps leave a pulse.
        """
        if os.environ.get(KEEP_WATCHING_VARIABLE) != "1":
            self._be_quiet()

    def _be_quiet(self) -> None:
        if self.is_over or self.steps is None:
            return
        self.is_over = True
        wait_no_more(self.waiting)
        if self.voice is not None:
            with ignore_our_errors():
                self.pulse = self.voice.quiet(self.pace)
        while self._undo:
            with ignore_our_errors():
                self._undo.pop()()


def _makes_rank(row: KnownCall) -> bool:
    return row.step == PROCESS_GROUP or row.numbers is not None


def _is_step(row: KnownCall, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        return row.when is not None and row.when(args, kwargs)
    except Exception as error:
        raise_if_of_the_job(error)
        return False


CURRENT: RankSide | None = None  # of this process


def take_role() -> bool:
    """Put in place what this process needs, and say hello if it is a rank already. Return False if
    it may become one as soon as it imports a library that we know.
    """
    place, found = _find_role()
    if found is Role.HELPER:  # spawned, perhaps to be a rank
        _become_helper()
    elif found is Role.RANK:
        _become_rank(place, trains=False)
    return found in (Role.HELPER, Role.NONE)


def take_role_at_import(is_child: bool, heard: Callable[[], None]) -> None:
    """A library that we know is about to be imported: from now on this is a rank, unless it
    `is_child` of a Python that imported none: one of several, perhaps. `heard` is what called us,
    and waits for other libraries.
    """
    if CURRENT is not None:
        if not is_child:
            CURRENT.claim(trains=True)
    elif is_child:
        _become_helper()
    else:
        _become_rank(_find_role()[0], trains=True)
    if CURRENT is not None:
        CURRENT.waiting.append(heard)


def _become_helper() -> None:
    global CURRENT
    CURRENT = RankSide(is_helper=True)
    note_failed_targets()
    CURRENT.install(row for row in KNOWN_CALLS if _makes_rank(row))


def _become_rank(place: Place, trains: bool) -> None:
    global CURRENT
    CURRENT = side = RankSide(is_helper=False)
    if os.environ.get(JOB_VARIABLE, place.job) != place.job:
        # Another job's: the process that started our launcher left them in its environment.
        del os.environ[JOB_VARIABLE]
        os.environ.pop(FOLDER_VARIABLE, None)
    of_script = place.launcher is None
    place = find_place()
    if of_script and place.joined:
        place = replace(place, launcher=None)
    if place.launcher is None and not place.joined:
        place = replace(place, job=job_of_this_process())
    # Before the log of collectives, which counts the frames between it and the script.
    side.install(KNOWN_CALLS)
    side.install_own(parse_steps(os.environ.get(STEP_VARIABLE, "")))
    side.install_captures(parse_classes(os.environ.get(CAPTURE_VARIABLE, "")))
    side.count_steps()
    side.listen_to_agent()
    is_certain = place.launcher is not None or (
        place.joined and not _is_on_further_node(place) and not _was_uncertain()
    )
    side.speak(place, trains, is_certain)
    if not is_certain:  # what it starts may be the server, or the ranks
        note_failed_targets()
    from .rank_output import hear_uncaught_error

    def failed(error: BaseException) -> None:
        if side.voice is not None and os.getpid() == side.pid:
            side.voice.failed(error)
            if not side.is_certain:  # its goodbye comes once it has ended what it started
                note_failure(error)

    hear_uncaught_error(failed)


def _was_uncertain() -> bool:
    """Return whether this process was a rank of no known number before it became this program
    (exec): one that starts the ranks, perhaps.
    """
    claim = read_claim(os.environ.get(CLAIM_VARIABLE, ""))
    return claim is not None and claim.pid == os.getpid() and not claim.numbered


def _is_on_further_node(place: Place) -> bool:
    """Return whether a rank is of another node than the first, and has only its number there until
    it joins the others: what Lightning's own launch starts has.
    """
    return not place.counted and bool(number(os.environ, "NODE_RANK"))


def _find_starter() -> int:
    """Return the pid of who started this process: that `hangbisect run` stands in between is none
    of the job's.
    """
    parent = os.getppid()
    return parent_of(parent) if os.environ.get(FRONT_VARIABLE) == str(parent) else parent


def _find_role() -> tuple[Place, Role]:
    """Return where this process stands, and what it is."""
    launched = any(number(os.environ, name) is not None for name in RANK_VARIABLES)
    joined = bool(os.environ.get(FOLDER_VARIABLE) and os.environ.get(JOB_VARIABLE))
    ours = {FOLDER_VARIABLE, JOB_VARIABLE} if launched else set()
    place = find_place({name: value for name, value in os.environ.items() if name not in ours})
    seen = ProcessFacts(
        pid=os.getpid(),
        parent=_find_starter(),
        claim=read_claim(os.environ.get(CLAIM_VARIABLE, "")),
        launched=launched and place.launcher is not None,
        joined=joined,
        numbered="LOCAL_RANK" in os.environ,
        job=place.job,
        rank=place.rank,
        launcher=place.launcher_pid,
        has_others=place.has_others,
    )
    role = decide_role(seen)
    has_agent = "TORCHELASTIC_RUN_ID" in os.environ  # it is quiet by itself in that script
    if is_started_by_script(seen) and joined and not has_agent:
        place = replace(place, launcher=None, joined=True, job=os.environ[JOB_VARIABLE])
    return place, role
