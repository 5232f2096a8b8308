"""What to start under a setting of the toggles, and how a command is set as it stands.

In a pipeline of ours a toggle is applied by its flag, at the end of the command; in a user's own
command by variables of the environment, and where these do not say it by the arguments of calls,
which the rank side changes below `hangbisect run`; the number of ranks by the launcher's own word.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import UsageError
from ..nearest import nearest
from ..steering import VARIABLE as STEER
from ..steering import read as steered_in
from ..steering import written
from . import launcher_words, own_toggle, proxies
from .flags import ENV, variables_given, without
from .program_words import own_words_of_ours
from .reached import Reached, as_it_applies, as_script_has_it, why_unused
from .standing import value_as_run
from .toggle import AS_SET, Toggle
from .values import as_read, matters, variables, why_not, why_unread, with_host
from .values import safer as safer
from .values import safest as safest

# Of a command of the user's: where a start writes and how it ends is the search's own affair.
_OF_EACH_START = ("--run-dir", "--on-hang", "--past", "--known-hang")
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Applied:
    command: tuple[str, ...]
    environment: Mapping[str, str]  # to be set beside the user's own


@dataclass(frozen=True)
class Known:
    """What is known of the machine and of the hang, None where it is not."""

    has_gpu: bool | None = None
    host: str | None = None  # the one in question, for what is about a host
    reached: Reached | None = None  # what a script of the user's own came to in a start


def is_ours(command: Sequence[str]) -> bool:
    """Return whether a command walks one of our pipelines."""
    return own_words_of_ours(command) is not None


def applied(
    command: Sequence[str],
    setting: Mapping[str, str],
    table: Sequence[Toggle],
    environ: Mapping[str, str] = _NOTHING,
    ours: bool | None = None,
) -> Applied:
    """Return what to start under a setting; a toggle that is not named is left as it is.

    `environ` is the user's own environment: what is added to a variable is added to that. `ours`
    None: is_ours() tells. Of a pipeline of ours the run folder and what ends a run are left out: a
    start must not overwrite what it rests on, and ends when its question is answered. Raises
    UsageError for what cannot be applied.
    """
    ours = is_ours(command) if ours is None else ours
    words, environment, steered = tuple(command), dict[str, str](), dict[str, str]()
    if ours:
        for flag in _OF_EACH_START:
            words = without(words, flag)
    for entry, value in _in_order(setting, as_read(table, command, ours)):
        if value == AS_SET:
            continue
        wrong = why_not(entry, value, words, environ, ours)
        if wrong:
            raise UsageError(f"{entry.name}={value} cannot be applied: {wrong}")
        if entry.launcher:
            words, more = launcher_words.with_ranks(words, value, environ)
            environment.update(more)
            continue
        if ours and entry.flag:
            words = (*without(words, entry.flag), entry.flag, value)
            continue
        if entry.words:
            words = own_toggle.with_words(words, entry, value)
        environment.update(variables(entry, value, environ))
        if not ours and entry.change_in_code(value):
            steered[entry.name] = value
    if steered:
        environment[STEER] = written({**steered_in(environ.get(STEER, "")), **steered})
    for name in environment if ours else ():
        words = without(words, ENV, f"{name}=")  # it would have the last word, inside the rank
    return Applied(words, environment)


def pasted(applied: Applied) -> str:
    """Return one line that is ready to paste: "WANDB_MODE=offline torchrun ...".

    What is changed inside the ranks is changed below `hangbisect run` alone.
    """
    variables = [f"{name}={shlex.quote(value)}" for name, value in applied.environment.items()]
    watched = ["hangbisect run --"] if STEER in applied.environment else []
    return " ".join([*variables, *watched, shlex.join(applied.command)])


def as_run(
    command: Sequence[str],
    environ: Mapping[str, str],
    table: Sequence[Toggle],
    ours: bool | None = None,
) -> dict[str, str]:
    """Return each toggle's value as the user runs it, by name, where it is known."""
    ours = is_ours(command) if ours is None else ours
    environ = _in_ranks(command, environ, ours)
    found = {
        entry.name: value_as_run(entry, tuple(command), environ, ours)
        for entry in as_read(table, command, ours)
    }
    return {name: value for name, value in found.items() if value is not None}


def usable(
    command: Sequence[str],
    environ: Mapping[str, str],
    table: Sequence[Toggle],
    known: Known = Known(),
    ours: bool | None = None,
) -> tuple[tuple[Toggle, ...], dict[str, str]]:
    """Return the toggles that change anything about this command, and why each other one does not.

    Each has only the values that can be applied here, from what the user runs now (AS_SET where
    that is not known) to safest, and a host in the place where a value wants one. Probes are among
    them: who looks for a remedy leaves them out by their kind.
    """
    ours = is_ours(command) if ours is None else ours
    environ = _in_ranks(command, environ, ours)
    left: list[Toggle] = []
    unused: dict[str, str] = {}
    for entry in as_read(table, command, ours):
        current = value_as_run(entry, tuple(command), environ, ours)
        reason = _useless(entry, tuple(command), environ, known, ours)
        if not ours:
            current = current or as_script_has_it(entry, known.reached)
            entry = as_it_applies(entry, known.reached)
        values = [with_host(value, known.host) for value in safer(entry, current)]
        reasons = [why_not(entry, value, command, environ, ours) for value in values]
        values = [value for value, wrong in zip(values, reasons, strict=True) if not wrong]
        if not reason and not values:
            reason = reasons[-1] if reasons else f"it is {current or entry.values[-1]} already"
        if reason:
            unused[entry.name] = reason
        else:
            left.append(replace(entry, values=(current or AS_SET, *values)))
    return tuple(left), unused


def _in_ranks(command: Sequence[str], environ: Mapping[str, str], ours: bool) -> Mapping[str, str]:
    """Return the environment as the ranks have it."""
    return {**environ, **variables_given(command)} if ours else environ


def _useless(
    entry: Toggle,
    command: tuple[str, ...],
    environ: Mapping[str, str],
    known: Known,
    ours: bool,
) -> str:
    """Return why a toggle changes nothing about this command whatever its value, or ""."""
    if ours and (unread := why_unread(entry, command)):
        return unread
    if ours and not matters(entry, command):
        return f"it changes nothing without {' or '.join(entry.needs)}"
    if entry.gpu and known.has_gpu is False:
        return "there is no GPU here"
    if not ours and (reason := why_unused(entry, known.reached)):
        return reason
    if entry.accepts == "host" and not proxies.are_set(environ):
        return "no proxy is set"
    if entry.launcher:
        return launcher_words.why_not(command, environ)
    if entry.one_node:
        return launcher_words.several_nodes(command, environ)
    return ""


def _in_order(setting: Mapping[str, str], table: Sequence[Toggle]) -> list[tuple[Toggle, str]]:
    """Return toggles and values in the order of the table. Raises UsageError for an unknown one."""
    names = [entry.name for entry in table]
    for name in setting:
        if name not in names:
            raise UsageError(
                f"there is no toggle {name!r}{nearest(name, names)}",
                "`hangbisect toggles` lists them all.",
            )
    return [(entry, setting[entry.name]) for entry in table if entry.name in setting]
