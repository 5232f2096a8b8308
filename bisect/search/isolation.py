"""The facts of an isolation, while it runs and at its end, and what the first verdict says about
where to search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal
from urllib.parse import urlsplit

from ..base.identity import RankId
from ..base.lazy_dataclass import dataclass
from ..base.schema_types import Duration, Natural, Share
from ..base.verdict_facts import HangPlace, Setting, Trial, Verdict
from ..toggles.toggle import Toggle

# "isolated": one change makes it go away, and that was confirmed. "hangs_all_safe": no remedy of
# the table avoids it. "no_hang": no start hung. "not_isolated": it hangs, and what avoids it is not
# known; `why` says what came in between. "interrupted": by a person; it can be resumed.
IsolationOutcome = Literal["isolated", "hangs_all_safe", "no_hang", "not_isolated", "interrupted"]


@dataclass(frozen=True)
class ToggleChange:
    """One toggle of the answer."""

    toggle: str
    component: str
    before: str | None  # its value as the user runs it, where that is known
    value: str
    cost: str  # what one gives up with it
    in_code: str = ""  # what to change in the code of a script of the user's own
    package: str = ""  # whose version it is, if it is one
    hung: tuple[str, ...] = ()  # the versions with which it hung, nothing else being changed


@dataclass(frozen=True)
class Count:
    """How the starts under one setting ended."""

    starts: Natural
    hangs: Natural  # the hang in question
    others: Natural = 0  # neither that hang nor past it

    @property
    def passes(self) -> int:
        """Starts that came past the place in question."""
        return self.starts - self.hangs - self.others


@dataclass(frozen=True)
class ObservedHang:
    """The hang in question as the first verdict on it tells it."""

    place: HangPlace
    number: int | None  # of the checkpoint
    title: str  # of the checkpoint, "" if unknown
    culprit: tuple[RankId, ...]
    cause: str | None  # id in the catalogue of causes
    cause_title: str
    component: str | None
    tries: tuple[str, ...]  # toggles that the verdict says to try, the most promising first
    waits_for: str = ""  # "lock"
    detail: str = ""  # "/home/ada/.cache/huggingface/...lock"
    world_size: int | None = None


@dataclass(frozen=True)
class Isolation:
    """The answer, or as much of it as is known so far."""

    outcome: IsolationOutcome
    command: tuple[str, ...]  # as the user runs it
    trials: tuple[Trial, ...]
    seconds: Duration  # that all starts took together
    seen: ObservedHang | None = None  # None: nothing hung
    changes: tuple[ToggleChange, ...] = ()  # what makes it go away
    paste: str = ""  # the command with these changes, ready to paste
    with_it: Count | None = None  # when the answer was confirmed
    without: Count | None = None
    p_value: Share | None = None  # of as large a difference, were there none
    confidence: Annotated[float, ("exclusiveMinimum", 0), ("exclusiveMaximum", 1)] = 0.95
    confirm: Natural = 3
    flaky: bool = False  # hangs come and go
    companions: tuple[str, ...] = ()  # changes without which it fails in another way
    not_it: tuple[str, ...] = ()  # "strategy=ddp": still hangs with it
    harmful: tuple[str, ...] = ()  # "wandb=off": with it the job fails in another way
    unused: Mapping[str, str] = field(default_factory=dict)  # toggles not tried, and why
    described: tuple[str, ...] = ()  # what probes say: "hangs at 2 ranks, not at 1"
    why: str = ""  # a sentence, where it is not isolated
    next: str = ""  # the next step, as a sentence or a command
    options: Mapping[str, object] = field(default_factory=dict)  # as asked, for who resumes
    schema: Literal[1] = 1

    @property
    def of_a_crash(self) -> bool:
        """Whether what avoids a crash was looked for, and no hang."""
        return bool(self.options.get("crash"))

    @property
    def is_masked(self) -> bool:
        """Whether the command is not known as it was, for it held a secret."""
        return bool(self.options.get("masked"))


def format_setting(setting: Setting) -> str:
    """Return a setting as people write it: "wandb=offline num_workers=0"."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "as you run it"


# Folders whose locks a job shares with the one before it, by the variable that names another.
CACHE_VARIABLES = ("HF_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
# Who is asked by what hangs in a component, unless a variable names another.
_HOSTS = {
    "wandb": ("WANDB_BASE_URL", "https://api.wandb.ai"),
    "hub": ("HF_ENDPOINT", "https://huggingface.co"),
}
_IN_A_CACHE = ("/.cache/", "/huggingface/", "/torch_extensions/", "/.triton/", "/triton/")


def observe_hang(verdict: Verdict | None, place: HangPlace) -> ObservedHang:
    """Return what a verdict says of the hang at `place`; None: it could not be read."""
    if verdict is None:
        return ObservedHang(place, None, "", (), None, "", None, ())
    checkpoint, cause, wait = verdict.checkpoint, verdict.cause, verdict.waits_for
    return ObservedHang(
        place=place,
        number=checkpoint.number if checkpoint else None,
        title=checkpoint.title if checkpoint else "",
        culprit=verdict.ranks.culprit,
        cause=cause.id if cause else None,
        cause_title=cause.title if cause else "",
        component=verdict.component,
        tries=tuple(dict.fromkeys(one.toggle for one in verdict.try_)),
        waits_for=wait.kind if wait else "",
        detail=wait.detail if wait else "",
        world_size=verdict.world_size,
    )


def likely_toggles(toggles: Sequence[Toggle], seen: ObservedHang) -> tuple[str, ...]:
    """Return the names of those of `toggles` that the verdict speaks against: what it says to try,
    in its order, then the rest of the component that hangs.
    """
    names = [toggle.name for toggle in toggles]
    advised = [name for name in seen.tries if name in names]
    rest = [toggle.name for toggle in toggles if toggle.component == seen.component]
    return tuple(dict.fromkeys([*advised, *rest]))


def host_in_question(seen: ObservedHang, environ: Mapping[str, str]) -> str | None:
    """Return the host that the component in question asks, None if it asks none that is known."""
    if seen.component not in _HOSTS:
        return None
    variable, default = _HOSTS[seen.component]
    return urlsplit(environ.get(variable) or default).hostname


def is_cache_lock(seen: ObservedHang, environ: Mapping[str, str]) -> bool:
    """Return whether it waits for a lock that a start before it may have left in a cache."""
    if seen.waits_for != "lock" and "lock" not in (seen.cause or ""):
        return False
    named = [environ[name] for name in CACHE_VARIABLES if environ.get(name)]
    return any(folder in seen.detail for folder in (*_IN_A_CACHE, *named))
