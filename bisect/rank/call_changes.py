"""How each toggle changes a call under way, and what the script itself says there: process groups,
DataLoaders, models and generation of transformers, trainers, W&B.

Each `set_` function is a `Change`: it changes the call, unless the value is ASKED, and returns what
the script itself says there.

WandbLogger starts W&B on rank 0 alone, so what it does is left as it is.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any, Optional

from ..base.lazy_dataclass import dataclass
from ..base.place import find_place
from ..base.variables import ASKED


class Call:
    """The arguments of one call, or the answer that it gets in place of being made."""

    def __init__(
        self, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """`names` are those of the parameters that may be given by position."""
        self.args, self.kwargs = list(args), dict(kwargs)
        self.answered = False
        self.answer: Any = None
        self._names = names

    def get(self, name: str, default: Any = None) -> Any:
        """Return the argument of that name, `default` where it is not given."""
        at = self._at(name)
        return self.kwargs.get(name, default) if at is None else self.args[at]

    def set(self, name: str, value: Any) -> None:
        """Change the argument, or give it."""
        at = self._at(name)
        if at is None:
            self.kwargs[name] = value
        else:
            self.args[at] = value

    def reset(self, name: str, value: Any) -> None:
        """Change the argument if it is given: what is not given may not exist."""
        if name in self.kwargs or self._at(name) is not None:
            self.set(name, value)

    def answer_with(self, answer: Any) -> None:
        """Do not make the call: who makes it gets `answer`."""
        self.answered, self.answer = True, answer

    def _at(self, name: str) -> int | None:
        at = self._names.index(name) if name in self._names else len(self.args)
        return at if at < len(self.args) else None


@dataclass(frozen=True)
class ScriptValue:
    """What a script itself says of a toggle in a call."""

    value: str = ""  # "" where that is not known
    in_code: bool = False  # it overrules what the environment says


# Returns what the script says, None where the call is not what the toggle is about, and changes the
# call to the value, unless that is steering.ASKED.
Change = Callable[[Call, str], Optional[ScriptValue]]


def change_nothing(call: Call, value: str) -> ScriptValue:
    """Return that it is."""
    return ScriptValue()


def set_backend(call: Call, value: str) -> ScriptValue:
    """Give the process group that backend, "auto" for torch's own choice."""
    now = call.get("backend")
    if value != ASKED:
        call.set("backend", None if value == "auto" else value)
        if value == "gloo":
            call.reset("device_id", None)  # it binds the group to one GPU, at once
    return ScriptValue(str(now) if now in ("nccl", "gloo") else "auto")


# What torch refuses without workers (torch/utils/data/dataloader.py).
_OF_WORKERS = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}


def set_num_workers(call: Call, value: str) -> ScriptValue:
    """Give the loader so many workers."""
    now = call.get("num_workers", 0)
    if value.isdigit():
        call.set("num_workers", int(value))
        for name, none in _OF_WORKERS.items() if int(value) == 0 else ():
            call.reset(name, none)
    return ScriptValue(str(now))


def set_worker_start(call: Call, value: str) -> ScriptValue | None:
    """Let the loader start its workers by that method; one without workers starts none."""
    if not call.get("num_workers", 0):
        return None
    now = _find_start_method(call.get("multiprocessing_context"))
    if value != ASKED:
        call.set("multiprocessing_context", value)
    return ScriptValue(now)


def set_pin_memory(call: Call, value: str) -> ScriptValue:
    """Let the loader pin its batches, or not."""
    now = "on" if call.get("pin_memory", False) else "off"
    if value != ASKED:
        call.set("pin_memory", value == "on")
    return ScriptValue(now)


def set_packing(call: Call, value: str) -> ScriptValue:
    """Let texts be joined into full rows, or not (SFTConfig of trl)."""
    now = "on" if call.get("packing", False) else "off"
    if value != ASKED:
        call.set("packing", value == "on")
        call.reset("eval_packing", value == "on")
    return ScriptValue(now)


def _find_start_method(context: Any) -> str:
    """Return how a context starts processes. Asked in another way, multiprocessing takes its
    default for chosen, and the script can choose none any more.
    """
    if isinstance(context, str):
        return context
    asked = context if hasattr(context, "get_start_method") else multiprocessing
    chosen = asked.get_start_method(allow_none=True)
    return str(chosen or multiprocessing.get_all_start_methods()[0])


_PLACEMENTS = (
    "auto",
    "balanced",
    "balanced_low_0",
    "sequential",
)  # by accelerate, over all devices


def set_attention(call: Call, value: str) -> ScriptValue:
    """Let the model compute attention in that way: its constructor takes it from the config."""
    config = call.get("config")
    now = getattr(config, "_attn_implementation", None)
    if value != ASKED:
        config._attn_implementation = value
    return ScriptValue(now if isinstance(now, str) else "")


def remove_device_map(call: Call, value: str) -> ScriptValue:
    """Let nobody place the layers: the whole model goes to the rank's own device."""
    given = call.get("device_map")
    placed = given in _PLACEMENTS if isinstance(given, str) else len(given) > 1 if given else False
    if value == "none" and placed:
        call.set("device_map", _find_own_device())
    return ScriptValue("auto" if placed else "none")


def set_generation_config(call: Call, value: str) -> ScriptValue:
    """Take the generation config from the cache alone, or make it from its arguments alone."""
    now = "local-files-only" if call.get("local_files_only") else "from-pretrained"
    if value == "local-files-only":
        call.set("local_files_only", True)
    elif value == "direct":
        made = call.args[0]()
        unused = made.update(**_keep_config_arguments(call))
        call.answer_with((made, unused) if call.get("return_unused_kwargs") else made)
    return ScriptValue(now)


def skip_gradient_checkpointing(call: Call, value: str) -> ScriptValue:
    """Leave activations in memory."""
    if value == "off":
        call.answer_with(None)
    return ScriptValue("on")


def _find_own_device() -> dict[str, int] | None:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    local = os.environ.get("LOCAL_RANK", "0")
    return {"": int(local) if local.isdigit() else 0}


def _keep_config_arguments(call: Call) -> dict[str, Any]:
    """Return the arguments of from_pretrained that are values of the config."""
    about = {"config_file_name", "cache_dir", "force_download", "local_files_only", "token"}
    about |= {"revision", "return_unused_kwargs", "subfolder", "proxies", "resume_download"}
    about |= {"pretrained_model_name", "trust_remote_code", "use_auth_token"}
    return {n: v for n, v in call.kwargs.items() if n not in about and not n.startswith("_")}


def set_max_new_tokens(call: Call, value: str) -> ScriptValue:
    """Let generate() make so many tokens at most."""
    now = _find_flag(call, "max_new_tokens")
    if value.isdigit():
        call.set("max_new_tokens", int(value))
    return ScriptValue(str(now) if isinstance(now, int) else "")


def set_do_sample(call: Call, value: str) -> ScriptValue:
    """Let generate() draw tokens, or take the likeliest."""
    now = _find_flag(call, "do_sample")
    if value in ("on", "off"):
        call.set("do_sample", value == "on")
    return ScriptValue("" if now is None else "on" if now else "off")


def _find_flag(call: Call, name: str) -> Any:
    """Return what the call says of a flag, itself or by the generation config that it is given."""
    return call.get(name, getattr(call.get("generation_config"), name, None))


# Callbacks without which the training itself is another one, or a script that asks them back for
# what they know fails: those of these classes, and of classes made from them, stay.
NEEDED_CALLBACKS = {
    *("Checkpoint", "EarlyStopping", "BaseFinetuning", "GradientAccumulationScheduler"),
    *("StochasticWeightAveraging", "WeightAveraging", "BasePredictionWriter"),
    *("DefaultFlowCallback", "EarlyStoppingCallback"),
}
# Strategies that start processes themselves: not what "ddp" is.
_STARTERS = ("spawn", "fork", "notebook")


def set_strategy(call: Call, value: str) -> ScriptValue:
    """Give Trainer or Fabric that strategy; one that is of this kind stays with its options."""
    now = _find_strategy_kind(call.get("strategy", "auto"))
    if value not in (ASKED, now):
        call.set("strategy", value)
    return ScriptValue(now)


def set_accelerator(call: Call, value: str) -> ScriptValue:
    """Let the model run on that; on the CPU on as many processes as the launcher started."""
    now = call.get("accelerator", "auto")
    if value != ASKED:
        call.set("accelerator", value)
        devices, started = call.get("devices", "auto"), os.environ.get("LOCAL_WORLD_SIZE", "")
        if value == "cpu" and not _is_count(devices):
            ranks = len(devices) if isinstance(devices, list) else 1
            call.set("devices", int(started) if started.isdigit() else ranks)
    return ScriptValue(now if isinstance(now, str) else "gpu", in_code=True)


def remove_callbacks(call: Call, value: str) -> ScriptValue:
    """Leave out the callbacks that are not needed."""
    given = call.get("callbacks")
    listed = [] if given is None else given if isinstance(given, list) else [given]
    kept = [one for one in listed if is_needed_callback(one)]
    if value == "none" and len(kept) < len(listed):
        call.set("callbacks", kept)
    return ScriptValue("" if len(kept) < len(listed) else "none")


def is_needed_callback(callback: Any) -> bool:
    """Return whether a callback, or a class of callbacks, is of a class in NEEDED_CALLBACKS."""
    made_from = (callback if isinstance(callback, type) else type(callback)).__mro__
    return any(one.__name__ in NEEDED_CALLBACKS for one in made_from)


def _find_strategy_kind(strategy: Any) -> str:
    """Return what kind a strategy is: "ddp" for every DDP with ranks that a launcher starts."""
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    is_ddp = name == "DDPStrategy" or name.startswith("ddp")
    started_by_itself = any(word in name for word in _STARTERS) or any(
        word in str(getattr(strategy, "_start_method", "")) for word in _STARTERS
    )
    return "ddp" if is_ddp and not started_by_itself else name


def _is_count(devices: object) -> bool:
    return str(devices).isdigit() and int(str(devices)) > 0


def find_current_rank() -> int:
    """Return the rank: of the process group where there is one, else as the launcher says."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return find_place().rank


_WANDB_MODES = {"offline": "offline", "off": "disabled"}
_TOGGLE_VALUES = {"offline": "offline", "dryrun": "offline", "disabled": "off"}


def set_wandb_mode(call: Call, value: str) -> ScriptValue | None:
    """wandb.init: on rank 0 alone (the others get a disabled run), offline, or disabled. A mode is
    given only where the script gives one: else WANDB_MODE says it.
    """
    rank, mode = find_current_rank(), _find_wandb_mode(call)
    if mode == "disabled" and rank:
        return None  # the script itself starts nothing here
    if value == "rank0" and rank:
        call.set("mode", "disabled")
    elif value in _WANDB_MODES and mode is not None:
        call.set("mode", _WANDB_MODES[value])
    now = _TOGGLE_VALUES.get(mode or "", "every-rank" if rank else "rank0")
    return ScriptValue(now, in_code=mode is not None)


def skip_wandb_login(call: Call, value: str) -> ScriptValue:
    """wandb.login: on rank 0 alone."""
    rank = find_current_rank()
    if value == "rank0" and rank:
        call.answer_with(True)
    return ScriptValue("every-rank" if rank else "rank0")


def _find_wandb_mode(call: Call) -> str | None:
    """Return the mode that the script gives, itself or in its settings."""
    settings: Any = call.get("settings")
    of_settings = settings.get("mode") if isinstance(settings, dict) else _find_mode_set(settings)
    mode = call.get("mode") or of_settings
    return None if mode is None else str(mode)


def _find_mode_set(settings: Any) -> Any:
    """Return the mode of a wandb.Settings, None where it only has its default."""
    named = getattr(settings, "model_fields_set", ())
    return getattr(settings, "mode", None) if "mode" in named else None
