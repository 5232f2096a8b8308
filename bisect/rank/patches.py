"""Toggles inside a script of the user's own: the arguments of well-known calls are changed on their
way, or only looked at, as HANGBISECT_STEER says. Nothing of the script is touched.

`PATCHES` is the table of these calls (to add one, add a line); they are patched once their modules
are there. A call that `change_nothing` stands at is only told: a variable of the environment does
the rest, if anything.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..base.error_guard import ignore_our_errors
from ..base.lazy_dataclass import dataclass
from ..base.variables import IN_CODE, VARIABLE, parse_toggle_values
from . import call_changes as changes
from .after_import import after_import
from .call_changes import Call, Change, ScriptValue, change_nothing
from .function_patching import (
    C10D,
    Function,
    exclude_from_compile,
    list_positional_parameters,
    make_look_alike,
    patch_attribute,
)
from .tracebacks import without_our_frame

Tell = Callable[[str], None]


class WordQueue:
    """Called with a word it passes it on, or keeps it until there is a receiver.

    A toggle's call may be reached before its process is known to be a rank; a process that never is
    one passes none on.
    """

    def __init__(self) -> None:
        self._tell: Tell | None = None
        self._kept: list[str] = []

    def __call__(self, word: str) -> None:
        """Tell `word`, now or later."""
        self._kept.append(word)
        self.through(self._tell)

    def through(self, tell: Tell | None) -> None:
        """Tell what is kept, and what comes, through `tell`; None: keep it from now on."""
        self._tell = tell
        while tell is not None and self._kept:
            tell(self._kept.pop(0))


# Of this process: given to begin_patching() where there is no receiver yet.
QUEUE = WordQueue()


def begin_patching(tell: Callable[[str], None]) -> None:
    """Steer this process from now on; without the variable nothing is done.

    tell() gets each of these once, when the call of a toggle is reached: "num_workers=4" (what the
    script says itself), "wandb" (which is not known), "wandb:in-code" (a variable of the
    environment would be overruled by what the script says).
    """
    wanted = parse_toggle_values(os.environ.get(VARIABLE, ""))
    if wanted:
        apply_patches(wanted, tell)


@dataclass(frozen=True)
class Patch:
    """A call that a toggle is about. `where` is module:attribute, as it is defined; without an
    attribute the import itself is told, and nothing changed.
    """

    toggle: str
    where: str
    change: Change

    @property
    def module(self) -> str:
        """The module that defines it."""
        return self.where.partition(":")[0]

    @property
    def attribute(self) -> str:
        """What it is there, dotted; "" for the import itself."""
        return self.where.partition(":")[2]


_LOADERS = (
    "torch.utils.data.dataloader:DataLoader.__init__",
    "torchdata.stateful_dataloader.stateful_dataloader:StatefulDataLoader.__init__",
)
_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
_FABRIC = ("lightning.fabric", "lightning_fabric")
_MODEL = "transformers.modeling_utils:PreTrainedModel"
_GENERATE = "transformers.generation.utils:GenerationMixin.generate"
_IN_GROUPS = (
    *("nccl_p2p_disable", "nccl_ib_disable", "nccl_shm_disable", "nccl_nvls_enable"),
    *("nccl_socket_ifname", "gloo_socket_ifname", "torch_distributed_debug"),
)

PATCHES: tuple[Patch, ...] = (
    Patch("wandb", "wandb:init", changes.set_wandb_mode),
    Patch("wandb", "wandb:login", changes.skip_wandb_login),
    *(Patch("strategy", f"{top}.trainer.trainer:Trainer.__init__", changes.set_strategy)
      for top in _LIGHTNING),
    *(Patch("strategy", f"{top}.fabric:Fabric.__init__", changes.set_strategy) for top in _FABRIC),
    *(Patch("accelerator", f"{top}.trainer.trainer:Trainer.__init__", changes.set_accelerator)
      for top in _LIGHTNING),
    *(Patch("accelerator", f"{top}.fabric:Fabric.__init__", changes.set_accelerator)
      for top in _FABRIC),
    *(Patch("callbacks", f"{top}.trainer.trainer:Trainer.__init__", changes.remove_callbacks)
      for top in _LIGHTNING),
    Patch("callbacks", "transformers.trainer:Trainer.__init__", changes.remove_callbacks),
    *(Patch("num_workers", where, changes.set_num_workers) for where in _LOADERS),
    *(Patch("worker_start", where, changes.set_worker_start) for where in _LOADERS),
    *(Patch("pin_memory", where, changes.set_pin_memory) for where in _LOADERS),
    Patch("packing", "trl.trainer.sft_config:SFTConfig.__init__", changes.set_packing),
    Patch("tokenizers_parallelism", "tokenizers:", change_nothing),
    Patch("hub", "huggingface_hub.utils._http:get_session", change_nothing),
    Patch("hub", "huggingface_hub.file_download:hf_hub_download", change_nothing),
    Patch("attention", f"{_MODEL}.__init__", changes.set_attention),
    Patch("device_map", f"{_MODEL}.from_pretrained", changes.remove_device_map),
    Patch("generation_config",
        "transformers.generation.configuration_utils:GenerationConfig.from_pretrained",
        changes.set_generation_config),
    Patch("max_new_tokens", _GENERATE, changes.set_max_new_tokens),
    Patch("do_sample", _GENERATE, changes.set_do_sample),
    Patch("gradient_checkpointing", f"{_MODEL}.activation_checkpointing_enable",
        changes.skip_gradient_checkpointing),
    Patch("gradient_checkpointing", f"{_MODEL}.gradient_checkpointing_enable",
        changes.skip_gradient_checkpointing),
    Patch("compile", "torch:compile", change_nothing),
    Patch("backend", f"{C10D}:init_process_group", changes.set_backend),
    *(Patch(name, f"{C10D}:init_process_group", change_nothing) for name in _IN_GROUPS),
)  # fmt: skip


def apply_patches(wanted: Mapping[str, str], tell: Callable[[str], None]) -> None:
    """Change the calls of the toggles in `wanted` to their values, whenever they are made."""
    steering = _Patching(wanted, tell)
    by_module: dict[str, list[Patch]] = {}
    for row in PATCHES:
        if row.toggle in wanted:
            by_module.setdefault(row.module, []).append(row)
    for name, rows in by_module.items():
        after_import(name, functools.partial(steering.take, rows))


class _Patching:
    """What is wanted, and what has been told."""

    def __init__(self, wanted: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._tell = tell
        self._told: set[str] = set()

    def take(self, rows: Sequence[Patch], module: ModuleType) -> None:
        """Put the changes of `rows` into the calls that `module` defines; raises nothing."""
        for attribute in dict.fromkeys(row.attribute for row in rows):
            mine = [row for row in rows if row.attribute == attribute]
            with ignore_our_errors():
                if attribute:
                    patch_attribute(module, attribute, functools.partial(self._steered, mine))
                else:
                    self._change(mine, Call((), (), {}))

    def _steered(self, rows: Sequence[Patch], function: Function) -> Function:
        names, change = list_positional_parameters(function), exclude_from_compile(self._change)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = change(rows, Call(names, args, kwargs))
            if made.answered:
                return made.answer
            try:
                return function(*made.args, **made.kwargs)
            except BaseException as error:
                without_our_frame(error)
                raise

        return make_look_alike(function, call)

    def _change(self, rows: Sequence[Patch], call: Call) -> Call:
        """Return the call as it is to be made; a change that fails is left out."""
        for row in rows:
            with ignore_our_errors():
                said = row.change(call, self._wanted[row.toggle])
                if said is not None:
                    self._reached(row.toggle, said)
        return call

    def _reached(self, toggle: str, said: ScriptValue) -> None:
        words = [f"{toggle}={said.value}" if said.value else toggle]
        words += [toggle + IN_CODE] if said.in_code else []
        for word in words:
            if word not in self._told:
                self._told.add(word)
                self._tell(word)
