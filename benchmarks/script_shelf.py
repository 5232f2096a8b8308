"""The scripts of scenarios/scripts/ and the answer that is right for each.

A script is what a user has: nothing of ours is imported. What starts it and what is right stands
in a comment at its end, as TOML between `# /// case` and `# ///`. scenarios/scripts/README.md says
what may stand there.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).resolve().parent.parent / "scenarios" / "scripts"
PACKAGES = FOLDER / "packages"  # stand-ins for libraries, which lie in a site-packages of the job
FLAVOURS = {  # by the first word of a file's name
    "accelerate": "accelerate",
    "ddp": "torch DDP",
    "deepspeed": "deepspeed",
    "fabric": "Lightning",
    "lightning": "Lightning",
    "mpirun": "torch DDP",
    "own": "means of its own",
    "program": "plain Python",
    "ray": "Ray",
    "server": "inference servers",
    "spawn": "torch DDP",
    "trainer": "transformers",
}
NO_NUMBER = -1  # stands for a process without a rank's number, an actor of Ray for example
_BLOCK = re.compile(r"(?m)^# /// case$\n((?:^#(?: .*)?$\n)+?)^# ///$")


@dataclass(frozen=True)
class Truth:
    """What really happens. Of several answers any is right."""

    outcome: Literal["hang", "ok"]
    culprits: tuple[frozenset[int], ...] = ()
    # Where ranks disagree and stacks alone cannot tell who is to blame: right too for `attach`.
    culprits_by_stacks: tuple[frozenset[int], ...] = ()
    waiting: frozenset[int] = frozenset()  # must never be blamed
    absent: frozenset[int] = frozenset()  # really never started: of no other rank may that be said
    steps: tuple[str, ...] = ()  # a checkpoint of `startup`, a phase, or a step's own name
    after: tuple[str, ...] = ()  # it hangs between steps, after the one with this title
    own_code: bool = False  # no known call is around it: `attach` may name no step
    ends: bool = False  # the culprit has ended: that it is called a crash is right as well
    busy: bool = False  # it burns CPU: `attach`, which looks for seconds, may call that slow
    calls: tuple[str, ...] = ()  # regular expressions, searched in the dotted call
    causes: tuple[
        str, ...
    ] = ()  # ids of the catalogue, or "unknown"; compared where they are given
    says: tuple[str, ...] = ()  # regular expressions, each found in the words of the verdict


@dataclass(frozen=True)
class Script:
    """A script on the shelf."""

    file: Path
    title: str  # the first line of its docstring
    command: tuple[str, ...]  # $NAME: of the world, or PORT, AMOUNT; "train.py" is the script
    truth: Truth
    world: str = ""  # what is outside the job, a name of script_worlds.py
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # beside the script, by name
    amount: float = 20.0  # how slow what is slow shall be: $AMOUNT, and its world's
    limit: float = 180.0  # seconds until it must hang, or have ended
    status: int = 0  # with which it ends, if it does; 128 and more: by a signal
    needs: tuple[str, ...] = ()  # packages without which it cannot run; no test has them installed
    packages: tuple[str, ...] = ()  # of PACKAGES, which it imports

    @property
    def name(self) -> str:
        """What it is selected by: `ddp_busy_loop`."""
        return self.file.stem

    @property
    def flavour(self) -> str:
        """What it is written with."""
        return FLAVOURS[self.name.partition("_")[0]]

    @property
    def missing(self) -> str:
        """The first package that it needs and that is not installed here, "" if there is none."""
        return next((one for one in self.needs if importlib.util.find_spec(one) is None), "")

    @property
    def is_program(self) -> bool:
        """It trains nothing: what counts is that it does the same below the watch."""
        return self.name.startswith("program_")

    @property
    def is_quick(self) -> bool:
        """It is healthy, and ends as soon as it can."""
        return self.is_program or "quick_start" in self.name or self.status != 0

    @property
    def source(self) -> str:
        """The script without the block that says what is right."""
        return _BLOCK.sub("", self.file.read_text(encoding="utf-8")).rstrip() + "\n"


class BadScript(Exception):
    """A file of the shelf says not, or wrongly, how it is started and what is right."""


def all_scripts(folder: Path = FOLDER) -> list[Script]:
    """Return every script, by name."""
    return [load(file) for file in sorted(folder.glob("*.py"))]


def chosen(words: Sequence[str], folder: Path = FOLDER) -> list[Script]:
    """Return the scripts whose names begin with one of `words`; all for none.

    Raises BadScript for a word that no name begins with.
    """
    shelf = all_scripts(folder)
    for word in words:
        if not any(one.name.startswith(word) for one in shelf):
            raise BadScript(f"no script is called {word}...; they lie in {folder}")
    return [one for one in shelf if not words or one.name.startswith(tuple(words))]


def load(file: Path) -> Script:
    """Return the script of a file. Raises BadScript."""
    text = file.read_text(encoding="utf-8")
    found = _BLOCK.search(text)
    if found is None:
        raise BadScript(f"{file} has no block between '# /// case' and '# ///'")
    try:
        told = tomllib.loads(re.sub(r"(?m)^# ?", "", found[1]))
        return _script(file, _title(text), told)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise BadScript(f"{file}: {type(error).__name__}: {error}") from error


def _title(text: str) -> str:
    import ast

    told = ast.get_docstring(ast.parse(text)) or ""
    return " ".join(told.partition("\n\n")[0].split())


def _script(file: Path, title: str, told: dict[str, Any]) -> Script:
    truth = Truth(
        outcome=told.pop("outcome", "hang"),
        culprits=_sets(told.pop("culprits", ())),
        culprits_by_stacks=_sets(told.pop("culprits_by_stacks", ())),
        waiting=frozenset(told.pop("waiting", ())),
        absent=frozenset(told.pop("absent", ())),
        steps=tuple(told.pop("steps", ())),
        after=tuple(told.pop("after", ())),
        own_code=told.pop("own_code", False),
        ends=told.pop("ends", False),
        busy=told.pop("busy", False),
        calls=tuple(told.pop("calls", ())),
        causes=tuple(told.pop("causes", ())),
        says=tuple(told.pop("says", ())),
    )
    if truth.outcome == "hang" and not (truth.culprits and truth.steps and truth.calls):
        raise KeyError("a hang has culprits, steps and calls")
    command = tuple(shlex.split(told.pop("command")))
    needs = tuple(told.pop("needs", ()))
    told["packages"] = tuple(told.pop("packages", ()))
    return Script(file=file, title=title, command=command, truth=truth, needs=needs, **told)


def _sets(told: Iterable[Iterable[int]]) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(ranks) for ranks in told)
