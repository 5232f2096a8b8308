"""What to start under a setting of the toggles, and how a command is set as it stands.

In a pipeline of ours a toggle is applied by its flag, at the end of the command; in a user's own
command by variables of the environment, and where these do not say it by the arguments of calls,
which the rank side changes below `hangbisect run`; the number of ranks by the launcher's own word.

The ranks report which calls of toggles the script reached: a toggle that the script never
reaches is left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from ..base import command_words
from ..base.command_words import ENV, given, own_words_of_ours, variables_given, without
from ..base.errors import UsageError, nearest
from ..base.lazy_dataclass import dataclass
from ..base.variables import ASKED, IN_CODE, VARIABLE, format_toggle_values, parse_toggle_values
from .toggle import (
    AS_SET,
    Toggle,
    are_set,
    as_read,
    as_run,
    matters,
    safer,
    variables,
    why_no_server,
    why_not,
    why_unread,
    with_host,
    with_words,
)

# Of a command of the user's: where a start writes and how it ends is the search's own affair.
_OF_EACH_START = ("--run-dir", "--on-hang", "--past", "--known-hang")
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class AppliedSetting:
    command: tuple[str, ...]
    environment: Mapping[str, str]  # to be set beside the user's own
    # Of packages, by name: who starts it has to start it in an environment with them.
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Known:
    """What is known of the machine and of the hang, None where it is not."""

    has_gpu: bool | None = None
    host: str | None = None  # the one in question, for what is about a host
    reached: ReachedToggles | None = None  # what a script of the user's own came to in a start


NOTHING_KNOWN = Known()


def walks_pipeline(command: Sequence[str]) -> bool:
    """Return whether a command walks one of our pipelines."""
    return own_words_of_ours(command) is not None


def apply_setting(
    command: Sequence[str],
    setting: Mapping[str, str],
    table: Sequence[Toggle],
    environ: Mapping[str, str] = _NOTHING,
    ours: bool | None = None,
) -> AppliedSetting:
    """Return what to start under a setting; a toggle that is not named is left as it is.

    `environ` is the user's own environment: what is added to a variable is added to that. `ours`
    None: is_ours() tells. Of a pipeline of ours the run folder and what ends a run are left out: a
    start must not overwrite what it rests on, and ends when its question is answered. Raises
    UsageError for what cannot be applied.
    """
    ours = walks_pipeline(command) if ours is None else ours
    words, environment, steered = tuple(command), dict[str, str](), dict[str, str]()
    versions: dict[str, str] = {}
    if ours:
        for flag in _OF_EACH_START:
            words = without(words, flag)
    for entry, value in _in_table_order(setting, as_read(table, command, ours)):
        if value == AS_SET:
            continue
        wrong = why_not(entry, value, words, environ, ours)
        if wrong:
            raise UsageError(f"{entry.name}={value} cannot be applied: {wrong}")
        if entry.package:
            versions[entry.package] = value
            continue
        if entry.launcher:
            words, more = command_words.with_ranks(words, value, environ)
            environment.update(more)
            continue
        if ours and entry.flag:
            words = (*without(words, entry.flag), entry.flag, value)
            continue
        if (spelling := entry.of_server(words)) is not None:
            words = spelling.apply(words, value)
            environment.update({spelling.variable: value} if spelling.variable else {})
            continue
        if entry.words:
            words = with_words(words, entry, value)
        environment.update(variables(entry, value, environ))
        if not ours and entry.change_in_code(value):
            steered[entry.name] = value
    if steered:
        environment[VARIABLE] = format_toggle_values(
            {**parse_toggle_values(environ.get(VARIABLE, "")), **steered}
        )
    for name in environment if ours else ():
        words = without(words, ENV, f"{name}=")  # it would have the last word, inside the rank
    return AppliedSetting(words, environment, versions)


def format_command(applied: AppliedSetting) -> str:
    """Return one line that is ready to paste: "WANDB_MODE=offline torchrun ...".

    What is changed inside the ranks is changed below `hangbisect run` alone.
    """
    variables = [f"{name}={shlex.quote(value)}" for name, value in applied.environment.items()]
    watched = ["hangbisect run --"] if VARIABLE in applied.environment else []
    return " ".join([*variables, *watched, shlex.join(applied.command)])


def values_as_run(
    command: Sequence[str],
    environ: Mapping[str, str],
    table: Sequence[Toggle],
    ours: bool | None = None,
) -> dict[str, str]:
    """Return each toggle's value as the user runs it, by name, where it is known."""
    ours = walks_pipeline(command) if ours is None else ours
    environ = _environment_in_ranks(command, environ, ours)
    found = {
        entry.name: value_as_run(entry, tuple(command), environ, ours)
        for entry in as_read(table, command, ours)
    }
    return {name: value for name, value in found.items() if value is not None}


def find_usable_toggles(
    command: Sequence[str],
    environ: Mapping[str, str],
    table: Sequence[Toggle],
    known: Known = NOTHING_KNOWN,
    ours: bool | None = None,
) -> tuple[tuple[Toggle, ...], dict[str, str]]:
    """Return the toggles that change anything about this command, and why each other one does not.

    Each has only the values that can be applied here, from what the user runs now (AS_SET where
    that is not known) to safest, and a host in the place where a value wants one. Probes are among
    them: who looks for a remedy leaves them out by their kind.
    """
    ours = walks_pipeline(command) if ours is None else ours
    environ = _environment_in_ranks(command, environ, ours)
    left: list[Toggle] = []
    unused: dict[str, str] = {}
    for entry in as_read(table, command, ours):
        current = value_as_run(entry, tuple(command), environ, ours)
        reason = _why_useless(entry, tuple(command), environ, known, ours)
        if not ours:
            current = current or least_safe_in_script(entry, known.reached)
            entry = restrict_to_script(entry, known.reached)
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


def _environment_in_ranks(
    command: Sequence[str], environ: Mapping[str, str], ours: bool
) -> Mapping[str, str]:
    """Return the environment as the ranks have it."""
    return {**environ, **variables_given(command)} if ours else environ


def _why_useless(
    entry: Toggle, command: tuple[str, ...], environ: Mapping[str, str], known: Known, ours: bool
) -> str:
    """Return why a toggle changes nothing about this command whatever its value, or ""."""
    if ours and (unread := why_unread(entry, command)):
        return unread
    if ours and not matters(entry, command):
        return f"it changes nothing without {' or '.join(entry.needs)}"
    if entry.servers and (reason := why_no_server(entry, command)):
        return reason
    if entry.set_by and not environ.get(entry.set_by):
        return f"{entry.set_by} is not set"
    if entry.gpu and known.has_gpu is False:
        return "there is no GPU here"
    if not ours and (reason := why_unused(entry, known.reached)):
        return reason
    if entry.accepts == "host" and not are_set(environ):
        return "no proxy is set"
    if entry.launcher:
        return command_words.why_not(command, environ)
    if entry.one_node:
        return command_words.several_nodes(command, environ)
    return ""


def _in_table_order(
    setting: Mapping[str, str], table: Sequence[Toggle]
) -> list[tuple[Toggle, str]]:
    """Return toggles and values in the order of the table. Raises UsageError for an unknown one."""
    names = [entry.name for entry in table]
    for name in setting:
        if name not in names:
            raise UsageError(
                f"there is no toggle {name!r}{nearest(name, names)}",
                "`hangbisect toggles` lists them all.",
            )
    return [(entry, setting[entry.name]) for entry in table if entry.name in setting]


_TRUE, _FALSE = ("1", "on", "yes", "true"), ("0", "off", "no", "false")


def value_as_run(
    entry: Toggle, command: tuple[str, ...], environ: Mapping[str, str], ours: bool
) -> str | None:
    if entry.launcher:
        count = command_words.ranks(command, environ)
        return None if count is None else str(count)
    if entry.accepts == "host":
        return entry.values[0] if are_set(environ) else entry.values[-1]
    if entry.package:
        return entry.default
    if entry.own:
        return as_run(entry, command, environ)
    if entry.servers:
        spelling = entry.of_server(command)
        now = spelling.read(command, environ) if spelling is not None else None
        is_known = now in entry.values or entry.accepts != "choice"
        return (now if is_known else None) or entry.default
    in_environment = _value_in_environment(entry, environ) or _value_by_launcher(entry, command)
    if not (ours and entry.flag):
        # What a flag is by default says nothing of a script that has no such flag.
        steered = parse_toggle_values(environ.get(VARIABLE, "")).get(entry.name, ASKED)
        steered_to = None if ours or steered == ASKED else steered
        return in_environment or steered_to or (None if entry.flag else entry.default)
    by_flag = given(command, entry.flag)
    if by_flag is not None and any(value == by_flag for value, _, _ in entry.environment):
        return by_flag  # it sets the variable itself
    current = by_flag or entry.default
    if in_environment and (current is None or in_environment in safer(entry, current)):
        return in_environment
    return current


def _value_by_launcher(entry: Toggle, command: tuple[str, ...]) -> str | None:
    """Return "1" for OMP_NUM_THREADS, which torchrun sets where nobody has, for several ranks."""
    if entry.variable != "OMP_NUM_THREADS" or not command_words.sets_threads(command):
        return None
    return None if command_words.ranks(command, {}) == 1 else "1"


def _value_in_environment(entry: Toggle, environ: Mapping[str, str]) -> str | None:
    """Return the value whose variables are all set in the environment."""
    if entry.variable:
        return environ.get(entry.variable) or None
    for value in reversed(entry.values):
        wanted = [(name, to) for known, name, to in entry.environment if known == value]
        if wanted and all(_says_same(environ.get(name), to) for name, to in wanted):
            return value
    return None


def _says_same(now: str | None, wanted: str) -> bool:
    """Return whether a variable says what is wanted: "true" says the same as "1"."""
    if now is None:
        return False
    return any(now.lower() in words and wanted.lower() in words for words in (_TRUE, _FALSE)) or (
        now == wanted
    )


UNREACHED = "the script never reaches it"


@dataclass(frozen=True)
class ReachedToggles:
    """What a script of the user's own comes to, and what it says there itself."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by toggle; (): not known
    in_code: frozenset[str] = frozenset()  # toggles whose variable the script overrules
    inside: bool = True  # a rank spoke at all: something can be changed inside it


def parse_reached(words: Iterable[str], inside: bool = True) -> ReachedToggles:
    """Return what was told in the words of rank/patches.py: "num_workers=4", "wandb:in-code"."""
    values: dict[str, tuple[str, ...]] = {}
    in_code: set[str] = set()
    for word in words:
        if word.endswith(IN_CODE):
            in_code.add(word.removesuffix(IN_CODE))
            continue
        name, _, value = word.partition("=")
        known = values.get(name, ())
        values[name] = (*known, value) if value and value not in known else known
    return ReachedToggles(values, frozenset(in_code), inside)


def merge_reached(
    one: ReachedToggles | None, other: ReachedToggles | None
) -> ReachedToggles | None:
    """Return what two starts told together."""
    if one is None or other is None:
        return one or other
    names = {**one.values, **other.values}
    values = {
        name: tuple(dict.fromkeys([*one.values.get(name, ()), *other.values.get(name, ())]))
        for name in names
    }
    return ReachedToggles(values, one.in_code | other.in_code, one.inside or other.inside)


def least_safe_in_script(entry: Toggle, reached: ReachedToggles | None) -> str | None:
    """Return the least safe of the values that the script says itself, None where none is known."""
    said = reached.values.get(entry.name, ()) if reached is not None else ()
    if entry.accepts == "count":
        return max((v for v in said if v.isdigit()), key=int, default=None)
    order = entry.values
    return min(said, key=lambda v: order.index(v) if v in order else -1, default=None)


def why_unused(entry: Toggle, reached: ReachedToggles | None) -> str:
    """Return why a toggle changes nothing about the script, or ""."""
    if reached is None:
        return ""
    if not reached.inside:
        only_inside = entry.in_code and not entry.by_environment
        return "no rank told of itself, so that nothing is changed inside it" * bool(only_inside)
    unseen = entry.reports_itself and entry.name not in reached.values
    return UNREACHED if unseen else ""


def restrict_to_script(entry: Toggle, reached: ReachedToggles | None) -> Toggle:
    """Return the toggle with the ways by which it is applied to the script."""
    if reached is None:
        return entry
    if not reached.inside:
        return replace(entry, in_code=())
    return replace(entry, overruled=entry.name in reached.in_code)
