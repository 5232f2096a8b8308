"""The calls by which toggles are applied in a script of the user's own: to add one, add a line.

A call that `reached` stands at is only told: a variable of the environment does the rest, if
anything.
"""

from __future__ import annotations

from ..torch_functions import C10D
from . import generating, groups, loaders, models, runs, trainers
from .reached import reached
from .row import Row

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

TABLE: tuple[Row, ...] = (
    Row("wandb", "wandb:init", runs.start),
    Row("wandb", "wandb:login", runs.login),
    *(Row("strategy", f"{top}.trainer.trainer:Trainer.__init__", trainers.strategy)
      for top in _LIGHTNING),
    *(Row("strategy", f"{top}.fabric:Fabric.__init__", trainers.strategy) for top in _FABRIC),
    *(Row("accelerator", f"{top}.trainer.trainer:Trainer.__init__", trainers.accelerator)
      for top in _LIGHTNING),
    *(Row("accelerator", f"{top}.fabric:Fabric.__init__", trainers.accelerator)
      for top in _FABRIC),
    *(Row("callbacks", f"{top}.trainer.trainer:Trainer.__init__", trainers.callbacks)
      for top in _LIGHTNING),
    Row("callbacks", "transformers.trainer:Trainer.__init__", trainers.callbacks),
    *(Row("num_workers", where, loaders.num_workers) for where in _LOADERS),
    *(Row("worker_start", where, loaders.worker_start) for where in _LOADERS),
    *(Row("pin_memory", where, loaders.pin_memory) for where in _LOADERS),
    Row("packing", "trl.trainer.sft_config:SFTConfig.__init__", loaders.packing),
    Row("tokenizers_parallelism", "tokenizers:", reached),
    Row("hub", "huggingface_hub.utils._http:get_session", reached),
    Row("hub", "huggingface_hub.file_download:hf_hub_download", reached),
    Row("attention", f"{_MODEL}.__init__", models.attention),
    Row("device_map", f"{_MODEL}.from_pretrained", models.device_map),
    Row("generation_config",
        "transformers.generation.configuration_utils:GenerationConfig.from_pretrained",
        models.generation_config),
    Row("max_new_tokens", _GENERATE, generating.max_new_tokens),
    Row("do_sample", _GENERATE, generating.do_sample),
    Row("gradient_checkpointing", f"{_MODEL}.activation_checkpointing_enable",
        models.gradient_checkpointing),
    Row("gradient_checkpointing", f"{_MODEL}.gradient_checkpointing_enable",
        models.gradient_checkpointing),
    Row("compile", "torch:compile", reached),
    Row("backend", f"{C10D}:init_process_group", groups.backend),
    *(Row(name, f"{C10D}:init_process_group", reached) for name in _IN_GROUPS),
)  # fmt: skip
