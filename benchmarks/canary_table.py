"""The calls in which ranks of libraries wait, and what is right to be said of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Children = Literal["", "stopped", "stopped at once"]  # at once: as soon as one is there


@dataclass(frozen=True)
class Canary:
    """A meeting, and what is right to be said of it."""

    name: str
    says: str  # a regular expression: in what the rank that waits is said to wait for
    waits: int = 0  # the rank that enters it
    alone: bool = False  # nobody else is to come: the rank that enters is blamed
    both: bool = False  # the other one enters before, and stands still in what it does there
    groupless: bool = False  # there is no process group yet
    children: Children = ""  # what happens to the helper processes of rank 0


_SAME = (
    "barrier monitored_barrier all_reduce all_gather broadcast reduce gather scatter "
    "reduce_scatter all_to_all_single recv"
)
CANARIES = (
    Canary("torch.init_process_group", "^store: _create_c10d_store", groupless=True),
    *(Canary(f"torch.{name}", rf"^collective: {name}\b") for name in _SAME.split()),
    Canary("torch.new_group", "^store: _new_process_group_helper"),
    Canary("torch.all_gather_into_tensor", "^collective: all_gather_(?:into_tensor|single)"),
    Canary("torch.all_gather_object", "^collective: all_gather"),
    Canary("torch.broadcast_object_list", "^collective: broadcast"),
    Canary("torch.gather_object", "^collective: (?:all_)?gather"),
    Canary("torch.batch_isend_irecv", "^collective: "),
    Canary("torch.Work.wait", "^collective: "),
    Canary("torch.functional all_reduce", "^collective: "),
    Canary("torch.Store.get", "^(?:store|socket): "),
    Canary("torch.Store.wait", "^(?:store|socket): "),
    Canary("torch.elastic barrier", "store"),
    Canary("torch.elastic synchronize", "store"),
    Canary("torch.DistributedDataParallel", "_verify_param_shape|DistributedDataParallel"),
    Canary("torch.backward", "backward"),
    Canary("torch.FSDP forward", "all_gather"),
    Canary("torch.fully_shard forward", "all_gather"),
    Canary("torch.checkpoint.save", "gather|scatter|broadcast"),
    Canary("torch.Join", "all_reduce|broadcast|Join|join|backward"),
    Canary("accelerate.wait_for_everyone", "barrier"),
    Canary("accelerate.gather", "all_gather"),
    Canary("accelerate.gather_for_metrics", "all_gather"),
    Canary("accelerate.reduce", "all_reduce"),
    Canary("accelerate.pad_across_processes", "all_gather"),
    Canary("accelerate.gather_object", "all_gather"),
    Canary("accelerate.broadcast", "broadcast"),
    Canary("accelerate.broadcast_object_list", "broadcast"),
    Canary("accelerate.main_process_first", "barrier", waits=1),
    Canary("accelerate.prepare", "_verify_param_shape|DistributedDataParallel"),
    Canary("accelerate.backward", "backward"),
    Canary("transformers.main_process_first", "barrier", waits=1),
    Canary(
        "transformers.Trainer.train",
        "_verify_param_shape|DistributedDataParallel|all_gather|broadcast",
    ),
    Canary(
        "transformers.Trainer.evaluate",
        "gather|broadcast|_verify_param_shape|DistributedDataParallel",
    ),
    Canary(
        "lightning.Trainer.fit", "barrier|broadcast|_verify_param_shape|DistributedDataParallel"
    ),
    Canary("lightning.Trainer.validate", "barrier|broadcast"),
    Canary("lightning.Trainer.save_checkpoint", "barrier|broadcast"),
    Canary("lightning.strategy.barrier", "barrier"),
    Canary("lightning.strategy.broadcast", "broadcast"),
    Canary("lightning.strategy.reduce", "all_reduce|barrier"),
    Canary("lightning.strategy.all_gather", "all_gather"),
    Canary("lightning.strategy.reduce_boolean_decision", "all_reduce|barrier"),
    Canary("lightning.fit prepare_data", "[Bb]arrier", waits=1, both=True),
    Canary("lightning.fit setup", "barrier", both=True),
    Canary("lightning.fit configure_optimizers", "barrier", both=True),
    Canary("lightning.fit on_fit_start", "barrier", both=True),
    Canary("lightning.fit training_step", "backward", both=True),
    Canary("lightning.fit on_save_checkpoint", "barrier|broadcast", waits=1, both=True),
    Canary("lightning.Fabric.barrier", "barrier"),
    Canary("lightning.Fabric.all_gather", "all_gather"),
    Canary("lightning.Fabric.all_reduce", "all_reduce|barrier"),
    Canary("lightning.Fabric.broadcast", "broadcast"),
    Canary("lightning.Fabric.setup", "_verify_param_shape|DistributedDataParallel"),
    Canary("lightning.Fabric.save", "barrier"),
    # It makes a group of its own, and rank 0 has not come to that.
    Canary("lightning.Fabric.rank_zero_first", "^store: _new_process_group_helper", waits=1),
    Canary("lightning.Fabric.rank_zero_first block", "[Bb]arrier", waits=1, both=True),
    Canary("lightning.Fabric.backward", "backward"),
    Canary("deepspeed.comm.barrier", "barrier"),
    Canary("deepspeed.comm.monitored_barrier", "monitored_barrier"),
    Canary("deepspeed.comm.all_reduce", "all_reduce"),
    Canary("deepspeed.comm.broadcast", "broadcast"),
    Canary("deepspeed.comm.all_gather", "all_gather"),
    Canary("deepspeed.comm.reduce", r"\breduce\b"),
    Canary("deepspeed.comm.all_gather_into_tensor", "all_gather"),
    Canary("deepspeed.comm.reduce_scatter_tensor", "reduce_scatter"),
    Canary("deepspeed.comm.all_to_all_single", "all_to_all"),
    Canary("deepspeed.comm.recv", "recv"),
    Canary("deepspeed.comm.new_group", "^store: _new_process_group_helper"),
    Canary("deepspeed.initialize", "broadcast"),
    Canary("deepspeed.engine.train_step", "all_reduce"),
    Canary("deepspeed.engine.save_checkpoint", "barrier|broadcast|all_reduce"),
    Canary("deepspeed.stage 1 engine.train_step", "all_reduce|reduce_scatter|all_gather|reduce"),
    Canary("deepspeed.stage 1 engine.save_checkpoint", "barrier|broadcast|all_reduce"),
    # They hand operations out, and wait for the handles.
    Canary("deepspeed.stage 2 engine.train_step", "^collective: "),
    Canary("deepspeed.stage 2 engine.save_checkpoint", "barrier|broadcast|all_reduce"),
    Canary("deepspeed.stage 3 engine.train_step", "^collective: "),
    Canary("deepspeed.stage 3 engine.save_checkpoint", "^collective: "),
    Canary("filelock.FileLock.acquire", "^lock: "),
    Canary("huggingface_hub.WeakFileLock", "^lock: "),
    Canary("huggingface_hub.hf_hub_download shared", "^lock: ", both=True),
    Canary("transformers.from_pretrained shared", "^lock: ", both=True),
    Canary("torch.FileBaton.wait", "baton", alone=True),
    Canary("torch.DataLoader worker", "DataLoader", alone=True),
    Canary("huggingface_hub.hf_hub_download", "huggingface_hub.hf_hub_download", alone=True),
    Canary("huggingface_hub.hf_hub_download half", "huggingface_hub.hf_hub_download", alone=True),
    Canary("huggingface_hub.snapshot_download", "huggingface_hub.snapshot_download", alone=True),
    Canary("huggingface_hub.HfApi.model_info", "huggingface_hub.HfApi.model_info", alone=True),
    Canary("transformers.from_pretrained", "transformers.AutoConfig.from_pretrained", alone=True),
    # The first one of W&B: once it is set up, nothing waits for that.
    Canary("wandb.setup", "wandb.setup", alone=True, children="stopped at once"),
    Canary("wandb.finish", "wandb.finish", alone=True, children="stopped"),
    Canary("wandb.init offline", "wandb.init", alone=True, children="stopped"),
    Canary("wandb.login", "wandb.login", alone=True),  # before an init: once is enough
    Canary("wandb.init", "wandb.init", alone=True),
    Canary("wandb.WandbLogger", "wandb.init", alone=True),
    Canary("deepspeed.init_distributed", "^store: _create_c10d_store", groupless=True),
    Canary("lightning.first fit", "^store: _create_c10d_store", groupless=True),
    Canary("lightning.Fabric.launch", "^store: _create_c10d_store", groupless=True),
    Canary("torch.rpc.init_rpc", "init_rpc|_init_process_group"),
    Canary("torch.rpc.shutdown", "shutdown|rpc|barrier"),
)
