"""What an isolation is to do: the command, the toggles that may be changed about it, and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..bisection.applying import Known, usable
from ..bisection.reached import Reached
from ..bisection.toggle import AS_SET, Toggle
from ..bisection.toggles import TOGGLES, showing_races
from ..errors import UsageError
from ..facts import Setting
from ..nearest import nearest
from .starts import Budget

OWN_CACHES = {"caches": "own"}  # no toggle of the table: each start gets empty ones


@dataclass(frozen=True)
class Plan:
    """What was asked for, and what can be changed."""

    command: tuple[str, ...]
    environ: Mapping[str, str]  # all variables that the command gets
    environment: Mapping[str, str] = field(default_factory=dict)  # those set beside our own
    folder: str = ""  # that a file's command is started in; "": where the person is
    ours: bool = False  # it walks a pipeline of ours
    table: tuple[Toggle, ...] = TOGGLES  # and a user's own
    only: tuple[str, ...] = ()  # toggles; none: all
    without: tuple[str, ...] = ()
    confirm: int = 3
    confidence: float = 0.95
    budget: Budget = field(default_factory=Budget)
    flaky: bool = False  # take it for one that comes and goes
    describe: bool = False
    crash: bool = False  # it crashes, and what avoids that is looked for
    has_gpu: bool | None = None
    options: Mapping[str, object] = field(default_factory=dict)  # as asked, for who resumes
    again: str = ""  # the command that goes on with it


@dataclass(frozen=True)
class Usable:
    """The toggles that change anything about this command, each with the values it may get: the
    first is as the user runs it, the last the safest.
    """

    remedies: tuple[Toggle, ...]
    probes: tuple[Toggle, ...]
    unused: Mapping[str, str]  # why each other remedy is not tried


def checked(plan: Plan) -> Plan:
    """Return the plan once it is known to be sound. Raises UsageError."""
    if not plan.command:
        raise UsageError(
            "isolate has no command to start",
            "hangbisect isolate -- torchrun --nproc_per_node=2 train.py",
        )
    known = [toggle.name for toggle in plan.table]
    for flag, names in (("--only", plan.only), ("--without", plan.without)):
        for name in names:
            if name not in known:
                raise UsageError(
                    f"{flag} names the toggle {name!r}, and there is none{nearest(name, known)}",
                    "`hangbisect toggles` lists them all.",
                )
    for toggle in plan.table:
        if toggle.name in plan.only and toggle.kind == "probe":
            raise UsageError(
                f"--only names {toggle.name}, a probe: it describes a hang, and is no remedy",
                "--describe starts the probes as well, once it is known what avoids the hang.",
            )
    return plan


def usable_toggles(plan: Plan, host: str | None = None, reached: Reached | None = None) -> Usable:
    """Return what can be changed; `host` is the one in question, `reached` what a script of the
    user's own came to, once they are known.
    """
    known = Known(has_gpu=plan.has_gpu, host=host, reached=reached)
    left, why_not = usable(plan.command, plan.environ, plan.table, known, plan.ours)
    remedies, unused = [], dict(why_not)
    for toggle in left:
        if plan.only and toggle.name not in plan.only:
            unused[toggle.name] = "not in --only"
        elif toggle.name in plan.without:
            unused[toggle.name] = "--without"
        elif toggle.kind == "remedy":
            remedies.append(toggle)
    names = [toggle.name for toggle in plan.table if toggle.kind == "remedy"]
    told = {name: why for name, why in unused.items() if name in names}
    probes = tuple(t for t in left if t.describes and t.name not in plan.without)
    remedies.sort(key=lambda toggle: not toggle.own)  # who declares some suspects them
    return Usable(tuple(remedies), probes, told)


def base_of_flaky(plan: Plan) -> dict[str, str]:
    """Return what every start of a hang that comes and goes is set to: barriers may hide it."""
    return showing_races(plan.table) if plan.ours else {}


def all_safe(toggles: Sequence[Toggle]) -> Setting:
    """Return the setting with every toggle at its safest."""
    return {toggle.name: toggle.values[-1] for toggle in toggles}


def before(toggle: Toggle) -> str | None:
    """Return the value that the user runs it with, None where that is not known."""
    return None if toggle.values[0] == AS_SET else toggle.values[0]
