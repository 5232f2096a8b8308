"""What the pipelines share before any library is imported: the steps `script`, `arguments` and
`logs_directory`, arguments and checks of them, the refusal of combinations that are known not to
work, the phases of a step in order; and texts and batches of tokens, what a training reads.

Workers of a DataLoader that are not forked import this module anew, so it has no library at its
top; torch's DataLoader takes any object that can be counted and indexed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..base.checkpoints import STARTUP_BY_NAME, Checkpoint, Phase
from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..base.pipeline import Pipeline, Step
from ..toggles.table import TOGGLES, add_toggles, toggles_of

if TYPE_CHECKING:
    from ..rank.walk import Context


# What pytorch-lightning 2.6 registers (StrategyRegistry.available_strategies()). Any other name is
# looked up in the registry itself, which costs an import.
_DDP = ("ddp", "ddp_spawn", "ddp_fork", "ddp_notebook")
_UNUSED = ("find_unused_parameters_false", "find_unused_parameters_true")
_STAGES = ("_1", "_1_offload", "_2", "_2_offload", "_3", "_3_offload", "_3_offload_nvme")
KNOWN_STRATEGIES = frozenset(
    [
        *("auto", "fsdp", "fsdp_cpu_offload", "deepspeed", "single_xla", "xla", "xla_debug"),
        *_DDP,
        *(f"{name}_{unused}" for name in _DDP for unused in _UNUSED),
        *(f"deepspeed_stage{stage}" for stage in _STAGES),
    ]
)


# Toggles whose flag sets a variable; of others the step reads the flag.
_SET_BY_FLAG = ("hub", "tokenizers_parallelism")


def script(context: Context) -> None:
    """Set what --env and the toggles want set before anything is imported; show what is set."""
    from ..base.environment import lines

    os.environ.update(wanted_environment(context.args))
    for line in lines("at the start"):
        context.say(line)


def wanted_environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the variables that the arguments ask for; --env has the last word."""
    wanted = {
        variable: setting
        for entry in TOGGLES
        if entry.name in _SET_BY_FLAG
        for value, variable, setting in entry.environment
        if getattr(args, entry.dest, None) == value
    }
    return {**wanted, **args.env}


def arguments(context: Context) -> argparse.Namespace:
    """Check what only the libraries or the job's place can tell; return the arguments."""
    args = context.args
    if args.strategy not in KNOWN_STRATEGIES:
        _check_strategy(args.strategy, context)
    world = context.place.world_size
    if args.devices not in (None, world) and context.place.launcher:
        raise UsageError(
            f"--devices cannot be {args.devices}: {context.place.launcher} started {world} ranks",
            "Leave --devices out under a launcher, or start the job without one.",
        )
    if args.data:
        context.about_to("os.path.exists", f" for {args.data}")
    if args.data and not os.path.exists(args.data):
        raise UsageError(f"--data names {args.data!r}, and there is no such file")
    context.say("Arguments: " + format_arguments(args))
    return args


def format_arguments(args: argparse.Namespace) -> str:
    """Return what was asked for, and all defaults, on one line; --env with its secrets masked."""
    from ..base.masking import mask, mask_text

    shown = {**vars(args), "env": {name: mask(name, value) for name, value in args.env.items()}}
    words = [f"{k}={v}" for k, v in sorted(shown.items()) if v not in (None, [], {}, False)]
    return mask_text(" ".join(words))


def _check_strategy(name: str, context: Context) -> None:
    from ..base.argument_types import wrong

    context.imports("torch")
    registry = context.imports("pytorch_lightning.strategies").StrategyRegistry
    registered = {"auto", *registry.available_strategies()}
    if name.lower() not in registered:
        raise wrong("--strategy", name, sorted(registered))


def logs_path(context: Context) -> str:
    """Return where the job's own logs go, whether it exists or not."""
    return os.path.abspath(context.args.logs_path or os.path.join(context.run_dir, "logs"))


def logs_directory(context: Context) -> str:
    """Make the logs directory, on every rank or on the first of each node, and return it."""
    path = logs_path(context)
    if context.args.make_logs_dir == "rank0":
        with context.once_a_node("logs directory") as mine:
            if mine:
                _make_output_folder(path, context)
    else:
        _make_output_folder(path, context)
    return path


def _make_output_folder(path: str, context: Context) -> None:
    context.about_to("os.makedirs", f" with {path}")
    os.makedirs(path, exist_ok=True)


def check_exists(flag: str, path: str | None, context: Context) -> None:
    """Raise UsageError where an argument names a path and nothing is there."""
    if path is None:
        return
    context.about_to("os.path.exists", f" for {path}")
    if not os.path.exists(path):
        raise UsageError(f"{flag} names {path!r}, and there is no such file or folder")


def hide_gpus(accelerator: str) -> None:
    """Have torch, which is not imported yet, see no GPU where the job is to run on the CPU."""
    if accelerator == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def as_path(name: str | None) -> str | None:
    """Return a name that can only be a path, None for what may be a name on the hub."""
    return name if name and name.startswith(("/", ".", "~")) else None


def check_minimum(flag: str, value: int, least: int) -> None:
    """Raise UsageError for a number below `least`."""
    if value < least:
        raise UsageError(f"{flag} cannot be {value}: it is a whole number from {least}")


_SIZE = re.compile(r"\d+(?:\.\d+)?(?:[KMGT]i?B)", re.IGNORECASE)


def device_size(flag: str) -> Callable[[str], tuple[int | str, str]]:
    """Return a reader of DEVICE=SIZE, as the pair that accelerate's max_memory has."""

    def read(value: str) -> tuple[int | str, str]:
        device, _, size = value.partition("=")
        if not (device == "cpu" or device.isdecimal()) or not _SIZE.fullmatch(size):
            raise UsageError(
                f"{flag} cannot be {value!r}: it is DEVICE=SIZE, 0=20GB for the first GPU or "
                "cpu=50GB"
            )
        return (device if device == "cpu" else int(device)), size

    return read


def add_max_memory(group: argparse._ActionsContainer, size: str) -> None:
    """Add --max-memory; `size` is that of the example."""
    group.add_argument(
        "--max-memory",
        metavar="DEVICE=SIZE",
        type=device_size("--max-memory"),
        action="append",
        default=[],
        help=f"for --device-map auto: what it may use of a GPU (0={size}) or the CPU (cpu=50GB); "
        "what has no room goes to the disk; repeatable",
    )


def row(
    name: str,
    title: str,
    component: str,
    deadline: float,
    run: Callable[[Context], Any],
    *,
    phases: tuple[Phase, ...] = (),
    skippable: bool = False,
) -> Step:
    """Return a step of a table; the pipeline gives its checkpoint the number of its place."""
    return Step(Checkpoint(name, title, component, deadline, phases=phases), run, skippable)


def make_pipeline(
    name: str,
    steps: Iterable[Step],
    add_own: Callable[[argparse._ActionsContainer], None],
    shows_itself: str,
    aliases: tuple[tuple[str, str], ...] = (),
    called: tuple[str, ...] = (),
) -> Pipeline:
    """Return the pipeline of the step `script` and those that follow it. `add_own` adds its
    arguments; those of the toggles that its steps read come after them.
    """

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("the pipeline")
        add_own(group)
        add_toggles(group, toggles_of(name))

    first = Step(STARTUP_BY_NAME["script"], script)
    return Pipeline(name, (first, *steps), add_arguments, shows_itself, aliases, called)


Facts = TypeVar("Facts")
_GO_ON = "To see it fail all the same: --skip preflight"


@dataclass(frozen=True)
class Impossible(Generic[Facts]):
    """A row. `seen` returns the settings with their values, None where they are not together."""

    id: str
    seen: Callable[[Facts], str | None]
    why: str
    way_out: str


def find_impossible(
    facts: Facts, table: Sequence[Impossible[Facts]]
) -> list[tuple[Impossible[Facts], str]]:
    """Return the combinations that the facts show, each with its settings in words."""
    return [(row, seen) for row in table if (seen := row.seen(facts)) is not None]


def refuse_impossible(context: Context, facts: Facts, table: Sequence[Impossible[Facts]]) -> Facts:
    """Return the facts, after a line that says so. Raises UsageError if a row is against them."""
    found = find_impossible(facts, table)
    if found:
        raise make_refusal(found)
    context.say("Preflight: nothing speaks against this combination")
    return facts


def find_missing(libraries: Iterable[str]) -> frozenset[str]:
    """Return those of `libraries` that are not there; imports none."""
    return frozenset(name for name in libraries if importlib.util.find_spec(name) is None)


def make_refusal(found: Sequence[tuple[Impossible[Facts], str]]) -> UsageError:
    """Return the error that names the settings, why they cannot go together, and the ways out."""
    (row, settings), *others = found
    help = [f"For {row.why}."]
    help += [f"Nor can {settings}: {row.why}." for row, settings in others]
    help += list(dict.fromkeys(f"Instead: {row.way_out}" for row, _ in found))
    return UsageError(f"{settings} cannot go together", "\n".join([*help, _GO_ON]))


class PhasesInOrder:
    """Announces the phases of the step that is under way: each once, in the order of the table and
    never backwards, or who asks whether a job is past one would be told so too early.
    """

    def __init__(self, context: Context) -> None:
        """Speak through `context`, whose step is asked for its phases when the first one begins."""
        self._context = context
        self._left: list[str] | None = None

    def begin(self, name: str) -> None:
        """Announce `name`, unless it or a later one was announced before."""
        if self._left is None:
            self._left = [phase.name for phase in self._context.step.phases]
        if name in self._left:
            del self._left[: self._left.index(name) + 1]
            self._context.phase(name)


IGNORED = -100  # the label that the loss leaves out (torch.nn.CrossEntropyLoss)
EPOCH = 1 << 16  # examples an epoch, at least: a new epoch would start new workers


class Texts:
    """Texts by index, from the start again after the last, so that an epoch is never short."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Hold `texts`, of which there must be one at least."""
        if not texts:
            raise ValueError("there is no text to train on")
        self._texts = texts

    def __len__(self) -> int:
        return max(EPOCH, len(self._texts))

    def __getitem__(self, index: int) -> str:
        return self._texts[index % len(self._texts)]


class Collate:
    """Makes a batch of texts: tokenized where it runs (in a worker, if there are any)."""

    def __init__(self, tokenizer: Any, length: int) -> None:
        """Cut and fill every text to `length` tokens."""
        self._tokenizer = tokenizer
        self._length = length

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        """Return ids, attention mask and labels, each of shape (texts, length)."""
        batch = self._tokenizer(
            texts,
            padding="max_length",
            truncation=True,
            max_length=self._length,
            return_tensors="pt",
        )
        ids, mask = batch["input_ids"], batch["attention_mask"]
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "labels": ids.masked_fill(mask == 0, IGNORED),
        }


class CollatePacked:
    """Makes a batch of texts without any padding: all of them one after another, cut into rows.

    How many rows that makes depends on the texts, so ranks get batches of different sizes.
    """

    def __init__(self, tokenizer: Any, length: int) -> None:
        """Make rows of `length` tokens."""
        self._tokenizer = tokenizer
        self._length = length

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        """Return ids, attention mask and labels, each of shape (rows, length), one row at least."""
        end = self._tokenizer.eos_token_id
        tokens: list[int] = []
        for text in self._tokenizer(texts)["input_ids"]:
            tokens += text if end is None else [*text, end]
        while len(tokens) < self._length:
            tokens += tokens
        whole = len(tokens) // self._length * self._length
        rows = [tokens[at : at + self._length] for at in range(0, whole, self._length)]
        batch = self._tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        return {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["attention_mask"],
            "labels": batch["input_ids"],
        }


def split_lines(text: str) -> list[str]:
    """Return the lines of `text` that hold something."""
    return [line.strip() for line in text.splitlines() if line.strip()]


class TokenRows:
    """Rows of tokens as examples, over and over, so that an epoch is never short."""

    def __init__(self, rows: list[list[int]]) -> None:
        """Hold `rows`, of which there must be one at least."""
        self._rows = rows

    def __len__(self) -> int:
        return max(EPOCH, len(self._rows))

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        row = self._rows[index % len(self._rows)]
        return {"input_ids": row, "labels": row}


def cut_rows(texts: list[list[int]], length: int) -> list[list[int]]:
    """Return the tokens of all texts in rows of `length`, one row at least: repeated if need be."""
    tokens = [token for text in texts for token in text]
    if not tokens:
        raise ValueError("the texts have no tokens")
    while len(tokens) < length:
        tokens += tokens
    return [tokens[at : at + length] for at in range(0, len(tokens) - length + 1, length)]


def collate_rows(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
    """Return a batch of rows as tensors."""
    import torch

    return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
