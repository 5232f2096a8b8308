"""What a toggle is: a named setting of one component, from as one runs it to safest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

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
class Toggle:
    """A named setting of one component.

    A remedy is a change that one can live with; a probe makes nearly every hang vanish and so
    describes more than it heals. `accepts`: "choice": the values are all there are; "count": any
    whole number from 0; "strategy": any strategy that Lightning registers; "text": any words;
    "host": a value may name a host ("excepted:api.wandb.ai").

    Applied by `flag` in a pipeline of ours, of `pipelines`, each of which may have a variant of it;
    else by variables of the environment: by `variable`, which gets the value itself, or by those
    that `environment` lists for the value. The launcher's own word is rewritten where `launcher` is
    set. A user's own toggle (own_toggle.py) puts `words` at the end of the command.

    In a script of the user's own the values of `in_code` are applied by the rank side, which
    changes the arguments of the call in question on their way (rank/steered/): each stands with
    what a person changes in the code. Where a variable says the same it is the variable, and both
    where the script overrules that.
    """

    name: str
    component: str
    values: tuple[str, ...]  # from as one runs it to safest
    kind: Literal["remedy", "probe"]
    read: Literal["start", "import", "run"]  # when its value is looked at for the last time
    cost: str  # what one gives up with the safest values
    help: str
    read_how: str = ""  # who looks at it: "wandb.init", "the launcher"
    default: str | None = None  # None: whatever the environment or the library says
    accepts: Literal["choice", "count", "strategy", "text", "host"] = "choice"
    flag: str = ""
    needs: tuple[str, ...] = ()  # without one of these flags it changes nothing
    pipelines: tuple[str, ...] = ("startup",)  # of ours, to which it matters
    variants: tuple[Variant, ...] = ()  # for pipelines in which it is another
    variable: str = ""
    environment: tuple[tuple[str, str, str], ...] = ()  # (value, variable, its value)
    in_code: tuple[tuple[str, str], ...] = ()  # (value, the change): "DataLoader(num_workers=0)"
    told: bool = False  # a script that comes to none of its calls, of which the rank side tells,
    # does not have it
    overruled: bool = False  # the script says in its code what a variable would say
    launcher: bool = False
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (value, words), for a user's own script
    own: bool = False  # a user's own, from a scenario file
    gpu: bool = False  # it changes nothing where there is no GPU
    describes: bool = False  # a probe that says something of a hang: it is tried to tell more
    unit: str = ""  # of its values, if they are numbers: "ranks"
    shows_races: str = ""  # the value under which it hides no race; another may
    one_node: bool = False  # its safest value parts the nodes of a job that has several

    @property
    def dest(self) -> str:
        """The attribute of the parsed arguments that has the value."""
        return self.flag.lstrip("-").replace("-", "_")

    def read_by(self, pipeline: str) -> Toggle:
        """Return the toggle as a pipeline of ours has it."""
        for variant in self.variants:
            if variant.pipeline == pipeline:
                fields = vars(variant).items()
                other = {k: v for k, v in fields if k != "pipeline" and v is not None}
                return replace(self, variants=(), **other)
        return self

    def change_in_code(self, value: str) -> str:
        """Return what is to be changed in the code of a script of the user's own, "" if nothing
        is, or nothing can be.
        """
        if not self.overruled and any(value == known for known, _, _ in self.environment):
            return ""
        listed = dict(self.in_code)
        return listed.get(value) or listed.get(ANY, "").replace("VALUE", value)

    @property
    def by_environment(self) -> bool:
        """Whether variables of the environment apply it, to any command."""
        return bool(self.variable or self.environment) or self.accepts == "host"
