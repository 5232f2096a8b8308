"""A toggle: a part of a job, with its settings from as you run it to safest, those of the user's
own too; and the settings that a command has now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from ..base import command_words, process_roles
from ..base.command_words import given, own_words, pipeline_of
from ..base.errors import UsageError, nearest
from ..base.lazy_dataclass import dataclass

AS_SET = "as-set"  # the value that leaves everything as the user has it
ANY = "*"  # in `in_code`: whatever value, which VALUE stands for
HOST = ":"  # between a value and the host that it is about: "excepted:api.wandb.ai"


@dataclass(frozen=True)
class Variant:
    """What is different about a toggle in one pipeline of ours; None: as it is elsewhere."""

    pipeline: str
    values: tuple[str, ...] | None = None
    default: str | None = None
    needs: tuple[str, ...] | None = None
    help: str | None = None


@dataclass(frozen=True)
class ServerFlags:
    """How one framework of inference servers spells a toggle: by a flag, or by a variable that gets
    the value itself. A value that `words` does not list is the first flag with the value after it,
    where flags take a word; else it is what the framework does without any of them.
    """

    framework: str
    flags: tuple[str, ...] = ()  # all that say it, in either sense; the first with a value
    takes: int = 0  # words after each
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (value, words)
    variable: str = ""

    def read(self, command: Sequence[str], environ: Mapping[str, str]) -> str | None:
        """Return the value that is set, None where none is."""
        if self.variable:
            return environ.get(self.variable) or None
        found = [command[at : at + size] for at, size in self._places(command)]
        if not found:
            return None
        flag, equals, given_value = found[-1][0].partition("=")
        value = given_value if equals else "".join(found[-1][1:])
        says = (_spell(flag), *([value] if value else []))
        for known, words in self.words:
            if words == says:
                return known
        return value or None

    def apply(self, command: Sequence[str], value: str) -> tuple[str, ...]:
        """Return the command with that value, and no other flag that says it."""
        if self.variable:
            return tuple(command)
        out = {one for at, size in self._places(command) for one in range(at, at + size)}
        kept = [word for at, word in enumerate(command) if at not in out]
        says = (self.flags[0], value) if self.takes else ()
        return (*kept, *dict(self.words).get(value, says))

    def _places(self, command: Sequence[str]) -> list[tuple[int, int]]:
        """Return where each of the flags stands in a command, and how many words it takes."""
        return [
            (at, 1 if "=" in word else 1 + self.takes)
            for at, word in enumerate(command)
            if _spell(word.partition("=")[0]) in self.flags
        ]

    def describe(self) -> str:
        """Return in words how it is applied."""
        if self.variable:
            return f"{self.framework}: {self.variable}=VALUE"
        listed = [" ".join(words) for _, words in self.words if words]
        if self.takes and all(words for _, words in self.words):
            listed.append(f"{self.flags[0]} VALUE")
        return f"{self.framework}: {' or '.join(listed)}"


def _spell(flag: str) -> str:
    return flag.replace("_", "-") if flag.startswith("--") else flag


@dataclass(frozen=True)
class Toggle:
    """A named setting of one component.

    A remedy is a change that a user can keep. A probe makes nearly every hang vanish: it describes
    the hang and does not repair it. `accepts`: "choice": the values are all there are; "count": any
    whole number from 0; "strategy": any strategy that Lightning registers; "text": any words;
    "host": a value may name a host ("excepted:api.wandb.ai").

    Applied by `flag` in a pipeline of ours, of `pipelines`, each of which may have a variant of it;
    else by variables of the environment: by `variable`, which gets the value itself, or by those
    that `environment` lists for the value. The launcher's own word is rewritten where `launcher` is
    set. A user's own toggle (`own_toggle`) puts `words` at the end of the command.

    In a script of the user's own the values of `in_code` are applied by the rank side, which
    changes the arguments of the call in question on their way (rank/patches.py): each stands with
    what a person changes in the code. Where a variable says the same it is the variable, and both
    where the script overrules that.
    """

    name: str
    component: str
    values: tuple[str, ...]  # from as you run it to safest
    kind: Literal["remedy", "probe"] = "remedy"
    read: Literal["start", "import", "run"] = "run"  # when its value is read for the last time
    cost: str = ""  # what you give up with the safest values
    help: str = ""
    read_how: str = ""  # what reads it: "wandb.init", "the launcher"
    default: str | None = None  # None: whatever the environment or the library says
    accepts: Literal["choice", "count", "strategy", "text", "host"] = "choice"
    flag: str = ""
    needs: tuple[str, ...] = ()  # without one of these flags it changes nothing
    pipelines: tuple[str, ...] = ("startup",)  # of ours, to which it matters
    variants: tuple[Variant, ...] = ()  # for pipelines in which it is another
    variable: str = ""
    environment: tuple[tuple[str, str, str], ...] = ()  # (value, variable, its value)
    in_code: tuple[tuple[str, str], ...] = ()  # (value, the change): "DataLoader(num_workers=0)"
    # A rank tells when a script comes to a call of this toggle: one that never does, has it not.
    reports_itself: bool = False
    libraries: tuple[
        str, ...
    ] = ()  # of which it changes a call; (): of one that any script may use
    overruled: bool = False  # the script says in its code what a variable would say
    launcher: bool = False
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (value, words), for a user's own script
    own: bool = False  # a user's own, from a scenario file or of a package's version
    package: str = ""  # whose version it is: applied by an environment that has it, and no words
    # Of inference servers: how each framework that has it spells it. Others are not changed by it.
    servers: tuple[ServerFlags, ...] = ()
    set_by: str = ""  # without this variable in the environment it changes nothing
    gpu: bool = False  # it changes nothing where there is no GPU
    describes: bool = False  # a probe that says something of a hang: it is tried to tell more
    unit: str = ""  # of its values, if they are numbers: "ranks"
    shows_races: str = ""  # the value under which it hides no race; another may
    one_node: bool = False  # its safest value parts the nodes of a job that has several

    @property
    def dest(self) -> str:
        """The attribute of the parsed arguments that has the value."""
        return self.flag.lstrip("-").replace("-", "_")

    def of_server(self, command: Sequence[str]) -> ServerFlags | None:
        """Return how the server that a command starts spells it, None if it does not."""
        framework = process_roles.find_framework(command)
        return next((one for one in self.servers if one.framework == framework), None)

    def read_by(self, pipeline: str) -> Toggle:
        """Return the toggle as a pipeline of ours has it."""
        for variant in self.variants:
            if variant.pipeline == pipeline:
                fields = vars(variant).items()
                other = {k: v for k, v in fields if k != "pipeline" and v is not None}
                return replace(self, variants=(), **other)
        return self

    def acts_on(self, libraries: Collection[str] | None) -> bool:
        """Return whether it may change anything about a script that uses these libraries; None: it
        is not known which.
        """
        return (
            libraries is None or not self.libraries or not set(self.libraries).isdisjoint(libraries)
        )

    def change_in_code(self, value: str) -> str:
        """Return what to change in the code of a script of the user's own, "" for nothing."""
        if not self.overruled and any(value == known for known, _, _ in self.environment):
            return ""
        listed = dict(self.in_code)
        return listed.get(value) or listed.get(ANY, "").replace("VALUE", value)

    @property
    def by_environment(self) -> bool:
        """Whether variables of the environment apply it, to any command."""
        return bool(self.variable or self.environment) or self.accepts == "host"


def own_toggle(
    name: str,
    words: Mapping[str, Sequence[str]],
    environment: Mapping[str, Mapping[str, str]] | None = None,
    kind: Literal["remedy", "probe"] = "remedy",
    help: str = "",
    component: str = "script",
    cost: str = "",
) -> Toggle:
    """Return the toggle with the values of `words` and `environment`, as one runs it first.

    Each value has words for the end of the command ({"off": ["--no-cache"]}; they replace those
    that this or another value names), variables, both, or neither: that is how the script is run
    today. Raises UsageError for words that begin with neither a flag nor NAME=,
    since what they replace could not be told.
    """
    environment = environment or {}
    values = tuple(dict.fromkeys([*words, *environment]))
    if len(values) < 2:
        has = "one value" if values else "no value"
        raise UsageError(f"the toggle {name!r} has {has}: it takes two at least")
    for value, listed in words.items():
        if listed and not _begins(listed[0]):
            raise UsageError(
                f"the toggle {name!r} has {listed[0]!r} at {value!r}: the words of a value begin "
                "with a flag (--lr 0.1) or with NAME= (trainer.devices=1)"
            )
    bare = [v for v in values if not words.get(v) and not environment.get(v)]
    return Toggle(
        name=name,
        component=component,
        values=values,
        kind=kind,
        read="run",
        read_how="your script",
        cost=cost or "as you know it: it is a toggle of yours",
        help=help or "a toggle of yours",
        default=bare[0] if bare else None,
        words=tuple((value, tuple(listed)) for value, listed in words.items()),
        environment=tuple(
            (value, variable, set_to)
            for value, wanted in environment.items()
            for variable, set_to in wanted.items()
        ),
        own=True,
    )


def version_toggle(package: str, installed: str, versions: Sequence[str]) -> Toggle:
    """Return the toggle of a package's version: `versions` are those to try beside the installed
    one, from the least change on. Its name is none of the table: "wandb_version".
    """
    return Toggle(
        name=f"{package.replace('-', '_')}_version",
        component=package,
        values=(installed, *versions),
        read="import",
        read_how="Python, where the package is imported",
        help=f"the version of {package}, in an environment of its own over that of the job",
        default=installed,
        own=True,
        package=package,
    )


def with_words(command: Sequence[str], entry: Toggle, value: str) -> tuple[str, ...]:
    """Return the command with a value's words at its end, and no others of the toggle."""
    begin = own_words(command)
    kept = list(command[begin:])
    for _, words in entry.words:
        for chunk in _chunks(words):
            kept = _remove_flag(kept, chunk)
    return (*command[:begin], *kept, *dict(entry.words).get(value, ()))


def as_run(entry: Toggle, command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the value whose words and variables are all there, else the one that has none.

    Where each has some, and nothing is there that any of them replaces, it is the first: they go
    from as you run it to safest. None where something else is there.
    """
    words_there = command[own_words(command) :]
    own = " ".join(["", *words_there, ""])
    listed = dict(entry.words)
    for value in reversed(entry.values):
        words = listed.get(value, ())
        wanted = [(name, to) for known, name, to in entry.environment if known == value]
        there = all(f" {' '.join(chunk)} " in own for chunk in _chunks(words))
        if (words or wanted) and there and all(environ.get(name) == to for name, to in wanted):
            return value
    if entry.default is not None or _is_set(entry, words_there, environ):
        return entry.default
    return entry.values[0]


def _is_set(entry: Toggle, words_there: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether anything is there that a value of it would replace."""
    names = {chunk[0].partition("=")[0] for _, words in entry.words for chunk in _chunks(words)}
    there = {word.partition("=")[0] for word in words_there}
    return bool(names & there) or any(name in environ for _, name, _ in entry.environment)


def _begins(word: str) -> bool:
    return word.startswith("-") or "=" in word


def _chunks(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the words as flags, each with the values that follow it."""
    chunks: list[list[str]] = []
    for word in words:
        if not chunks or (_begins(word) and not _is_number_word(word)):
            chunks.append([word])
        else:
            chunks[-1].append(word)
    return [tuple(chunk) for chunk in chunks]


def _is_number_word(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdigit()


def _remove_flag(command: Sequence[str], chunk: tuple[str, ...]) -> list[str]:
    """Return a command without a flag and as many words after it as the chunk has."""
    name, equals, _ = chunk[0].partition("=")
    kept: list[str] = []
    skip = 0
    for word in command:
        known, has_value, _ = word.partition("=")
        if skip:
            skip -= 1
        elif known != name or (equals and not has_value):
            kept.append(word)
        elif not has_value:
            skip = len(chunk) - 1
    return kept


def safer(toggle: Toggle, current: str | None) -> tuple[str, ...]:
    """Return the values that are safer than `current`, in order; without one all that change it."""
    values = toggle.values
    if toggle.accepts == "count" and current is not None and current.isdigit():
        return tuple(v for v in values if v.isdigit() and int(v) < int(current))
    if current in values:
        return values[values.index(current) + 1 :]
    return values if toggle.accepts == "count" else values[1:]


def matters(entry: Toggle, command: Sequence[str]) -> bool:
    """Return whether the flags are given without which a toggle changes nothing."""
    values = [given(command, flag) for flag in entry.needs]
    return not values or any(value not in (None, "0") for value in values)


def why_unread(entry: Toggle, command: Sequence[str]) -> str:
    """Return why a toggle changes nothing about the pipeline that a command walks, or ""."""
    name = pipeline_of(command)
    return "" if entry.own or name in entry.pipelines else f"the pipeline {name} does not read it"


def as_read(table: Sequence[Toggle], command: Sequence[str], ours: bool) -> tuple[Toggle, ...]:
    """Return the toggles as the pipeline of ours reads them that a command walks, if it does."""
    name = pipeline_of(command)
    return tuple(entry.read_by(name) for entry in table) if ours else tuple(table)


def why_not(
    entry: Toggle, value: str, command: Sequence[str], environ: Mapping[str, str], ours: bool
) -> str:
    """Return why a value cannot be applied to a command, or ""."""
    wrong = _wrong(entry, value)
    if wrong:
        return wrong
    if ours and (unread := why_unread(entry, command)):
        return unread
    if entry.servers:
        return why_no_server(entry, command)
    if entry.launcher:
        return command_words.why_not(tuple(command), environ)
    if ours and entry.flag:
        return ""
    has_words = any(known == value for known, _ in entry.words)
    if entry.own or has_words or entry.variable or entry.accepts == "host":
        return ""
    if any(known == value for known, _, _ in entry.environment) or entry.change_in_code(value):
        return ""
    return "nothing outside a script of yours says it; a scenario file can name how"


def why_no_server(entry: Toggle, command: Sequence[str]) -> str:
    """Return why a toggle of inference servers cannot be applied to a command, or ""."""
    if entry.of_server(command) is not None:
        return ""
    framework = process_roles.find_framework(command)
    if framework:
        return f"{framework} has no such setting"
    return f"it starts no server of {process_roles.VLLM} or {process_roles.SGLANG}"


def with_host(value: str, host: str | None) -> str:
    """Return the value with its host, if it wants one and there is one."""
    return f"{value}{HOST}{host}" if host and value == EXCEPTED else value


def variables(entry: Toggle, value: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a value sets in the environment, beside what is set there."""
    if entry.accepts == "host":
        return proxy_variables(value, environ)
    if entry.variable:
        return {entry.variable: value}
    return {name: set_to for known, name, set_to in entry.environment if known == value}


def _wrong(entry: Toggle, value: str) -> str:
    """Return what is wrong with a value, or ""."""
    name, sign, host = value.partition(HOST)
    if entry.accepts == "host" and sign and name in entry.values:
        return "" if host else f"it wants a host, {name}{HOST}HOST"
    if value in entry.values:
        no_host = entry.accepts == "host" and value == EXCEPTED
        return f"it wants a host, {value}{HOST}HOST" if no_host else ""
    if entry.accepts in ("text", "strategy"):
        return "" if value else "the value is empty"
    if entry.accepts == "count":
        least = 1 if entry.launcher else 0
        is_one = value.isascii() and value.isdigit() and int(value) >= least
        return "" if is_one else f"it is a whole number from {least}"
    return f"it is one of {', '.join(entry.values)}{nearest(value, entry.values)}"


EXCEPTED, OFF = "excepted", "off"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_EXCEPTIONS = ("NO_PROXY", "no_proxy")
# What each value changes, in words.
VARIABLES = {EXCEPTED: " and ".join(_EXCEPTIONS), OFF: ", ".join(_PROXIES) + " (and in capitals)"}


def are_set(environ: Mapping[str, str]) -> bool:
    """Return whether any request goes through a proxy."""
    return any(environ.get(name) for name in _both(_PROXIES))


def proxy_variables(value: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what to set for "excepted:HOST", "off"; nothing for any other value."""
    name, _, host = value.partition(":")
    if name == OFF:
        return dict.fromkeys(_both(_PROXIES), "")
    if name != EXCEPTED:
        return {}
    hosts = [h.strip() for name in _EXCEPTIONS for h in environ.get(name, "").split(",")]
    every = ",".join(dict.fromkeys([*(h for h in hosts if h), host]))
    return dict.fromkeys(_EXCEPTIONS, every)


def _both(names: tuple[str, ...]) -> list[str]:
    return [spelling for name in names for spelling in (name, name.upper())]
