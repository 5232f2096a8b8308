"""The calls of libraries that are steps of a user's script, announced and timed in the rank: to add
one is to add a line. What a function on a stack means is in base/library_functions.py.

Deadlines are in seconds, as in the startup pipeline: half a minute for what is local, minutes for
what downloads, loads, compiles or meets others. W&B's is below its own time limit (init_timeout,
90 s), so that we see it waiting. Whoever is late is looked at, not blamed; None is never late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..function_patching import C10D, COLLECTIVES, POINT_TO_POINT
from .process_role import GroupNumbers
from .server_ranks import number_sglang_scheduler, number_vllm_worker

When = Callable[[tuple[Any, ...], Mapping[str, Any]], bool]
Numbers = Callable[[Mapping[str, Any]], "GroupNumbers | None"]


class KnownCall(NamedTuple):
    """A call of a library that is a step of whoever makes it.

    `where` is module:attribute, as it is defined; without an attribute the import itself is the
    step. `checkpoint` and `phase` are those of the startup pipeline that it corresponds to. `when`
    is asked with the arguments of a call whether it is a step.
    """

    call: str  # as users write it
    where: str
    step: str
    title: str  # what is so when it is done
    component: str
    deadline: float | None  # seconds
    checkpoint: str | None = None
    phase: str | None = None
    once: bool = False  # only the first call is a step
    ends_start: bool = False  # once it is done the start-up is over
    when: When | None = None
    # Of a function that makes a process a rank: which one, by the names of its parameters.
    numbers: Numbers | None = None
    lasts: bool = False  # as long as the process: no step

    @property
    def module(self) -> str:
        """The module that defines it."""
        return self.where.partition(":")[0]

    @property
    def attribute(self) -> str:
        """What it is there, dotted; "" for the import itself."""
        return self.where.partition(":")[2]

    @property
    def of_torchs_groups(self) -> bool:
        """It is a function of torch.distributed, which are replaced in a way of their own."""
        return self.module == C10D


LIGHTNING = {"{pl}": ("pytorch_lightning", "lightning.pytorch")}
FABRIC = {"{fabric}": ("lightning_fabric", "lightning.fabric")}
_AUTO = "transformers.models.auto"
_EXTENSION = "torch.utils.cpp_extension"


def _no_batch_yet(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return getattr(args[0], "_num_yielded", 1) == 0


def _has_no_limit(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call waits until what it waits for is there: one with a time limit comes
    back in any case, and is made again and again.
    """
    return kwargs.get("timeout") is None


# fmt: off
# ruff: noqa: E501 a row is a line
_ROWS = (
    # call, module:attribute, step, title, component, deadline, checkpoint, phase
    KnownCall("argparse.ArgumentParser.parse_args", "argparse:ArgumentParser.parse_known_args", "arguments", "Args parsed", "arguments", 30, "arguments"),
    KnownCall("import torch", "torch:", "import_torch", "torch imported", "interpreter", 120),
    KnownCall("import transformers", "transformers:", "import_transformers", "transformers imported", "interpreter", 120),
    KnownCall("import lightning", "lightning:", "import_lightning", "lightning imported", "interpreter", 120),
    KnownCall("import pytorch_lightning", "pytorch_lightning:", "import_pytorch_lightning", "pytorch_lightning imported", "interpreter", 120),
    KnownCall("import datasets", "datasets:", "import_datasets", "datasets imported", "interpreter", 120),
    KnownCall("import accelerate", "accelerate:", "import_accelerate", "accelerate imported", "interpreter", 120),
    KnownCall("import deepspeed", "deepspeed:", "import_deepspeed", "deepspeed imported", "interpreter", 120),
    KnownCall("import wandb", "wandb:", "import_wandb", "wandb imported", "interpreter", 120),
    # The hub, tokenizers, models
    KnownCall("huggingface_hub.hf_hub_download", "huggingface_hub.file_download:hf_hub_download", "hub_download", "File there", "hub", 600),
    KnownCall("huggingface_hub.snapshot_download", "huggingface_hub._snapshot_download:snapshot_download", "hub_snapshot", "Snapshot there", "hub", 1800),
    KnownCall("huggingface_hub.login", "huggingface_hub._login:login", "hub_login", "Logged in to the hub", "hub", 60),
    KnownCall("transformers.AutoTokenizer.from_pretrained", f"{_AUTO}.tokenization_auto:AutoTokenizer.from_pretrained", "tokenizer", "Tokenizer loaded", "hub", 300, "tokenizer"),
    KnownCall("transformers.PreTrainedTokenizer.from_pretrained", "transformers.tokenization_utils_base:PreTrainedTokenizerBase.from_pretrained", "tokenizer", "Tokenizer loaded", "hub", 300, "tokenizer"),
    KnownCall("transformers.AutoProcessor.from_pretrained", f"{_AUTO}.processing_auto:AutoProcessor.from_pretrained", "processor", "Processor loaded", "hub", 300, "tokenizer"),
    KnownCall("transformers.AutoConfig.from_pretrained", f"{_AUTO}.configuration_auto:AutoConfig.from_pretrained", "model_config", "Model config loaded", "hub", 300),
    KnownCall("transformers.AutoModel.from_pretrained", f"{_AUTO}.auto_factory:_BaseAutoModelClass.from_pretrained", "model", "Model created", "model", 900, "model"),
    KnownCall("transformers.AutoModel.from_config", f"{_AUTO}.auto_factory:_BaseAutoModelClass.from_config", "model", "Model created", "model", 900, "model"),
    KnownCall("transformers.PreTrainedModel.from_pretrained", "transformers.modeling_utils:PreTrainedModel.from_pretrained", "model", "Model created", "model", 900, "model"),
    KnownCall("transformers.pipeline", "transformers.pipelines:pipeline", "pipeline", "Pipeline ready", "model", 900, "model"),
    KnownCall("transformers.GenerationConfig.from_pretrained", "transformers.generation.configuration_utils:GenerationConfig.from_pretrained", "generation_config", "Generation config loaded", "hub", 300),
    KnownCall("transformers.GenerationMixin.generate", "transformers.generation.utils:GenerationMixin.generate", "generate", "Text generated", "model", 600),
    KnownCall("transformers.TrainingArguments", "transformers.training_args:TrainingArguments.__post_init__", "training_arguments", "TrainingArguments ready", "accelerator", 120, "accelerator"),
    KnownCall("transformers.Trainer", "transformers.trainer:Trainer.__init__", "trainer", "Trainer ready", "trainer", 120, "trainer"),
    KnownCall("transformers.Trainer.train", "transformers.trainer:Trainer.train", "train", "Training finished", "fit", None, "training", ends_start=True),
    KnownCall("peft.get_peft_model", "peft.mapping_func:get_peft_model", "peft_model", "PEFT model ready", "model", 300),
    # Data
    KnownCall("datasets.load_dataset", "datasets.load:load_dataset", "load_dataset", "Dataset loaded", "data", 1200),
    KnownCall("datasets.load_from_disk", "datasets.load:load_from_disk", "load_dataset", "Dataset loaded", "data", 1200),
    KnownCall("datasets.Dataset.map", "datasets.arrow_dataset:Dataset.map", "dataset_map", "Dataset mapped", "data", 1800),
    KnownCall("datasets.DatasetDict.map", "datasets.dataset_dict:DatasetDict.map", "dataset_map", "Dataset mapped", "data", 1800),
    KnownCall("torch.utils.data.DataLoader.__iter__", "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter.__init__", "data_workers", "DataLoader workers started", "data", 120, "training", "first_batch"),
    KnownCall("torch.utils.data.DataLoader.__next__", "torch.utils.data.dataloader:_BaseDataLoaderIter.__next__", "first_batch", "First batch there", "data", 300, "training", "first_batch", when=_no_batch_yet),
    # Lightning
    KnownCall("{pl}.LightningModule", "{pl}.core.module:LightningModule.__init__", "lightning_module", "LightningModule begun", "lightning", 120, "lightning_module"),
    KnownCall("{pl}.LightningDataModule", "{pl}.core.datamodule:LightningDataModule.__init__", "data_module", "DataModule begun", "data", 60, "data_module"),
    KnownCall("{pl}.Trainer", "{pl}.trainer.trainer:Trainer.__init__", "trainer", "Trainer ready", "trainer", 60, "trainer"),
    KnownCall("{pl}.Trainer.fit", "{pl}.trainer.trainer:Trainer.fit", "fit", "Training finished", "fit", None, "training", ends_start=True),
    KnownCall("{pl}.Trainer.validate", "{pl}.trainer.trainer:Trainer.validate", "validate", "Validated", "fit", None),
    KnownCall("{pl}.Trainer.test", "{pl}.trainer.trainer:Trainer.test", "test", "Tested", "fit", None),
    KnownCall("{pl}.Trainer.predict", "{pl}.trainer.trainer:Trainer.predict", "predict", "Predicted", "fit", None),
    KnownCall("{pl}.strategies.Strategy.setup_environment", "{pl}.strategies.strategy:Strategy.setup_environment", "setup_environment", "Environment set up", "strategy", 120, "training", "process_group"),
    KnownCall("{pl}.strategies.DDPStrategy.setup_environment", "{pl}.strategies.ddp:DDPStrategy.setup_environment", "setup_environment", "Environment set up", "strategy", 120, "training", "process_group"),
    KnownCall("{pl}.strategies.FSDPStrategy.setup_environment", "{pl}.strategies.fsdp:FSDPStrategy.setup_environment", "setup_environment", "Environment set up", "strategy", 120, "training", "process_group"),
    KnownCall("{pl}.strategies.DeepSpeedStrategy.setup_environment", "{pl}.strategies.deepspeed:DeepSpeedStrategy.setup_environment", "setup_environment", "Environment set up", "strategy", 120, "training", "process_group"),
    KnownCall("{pl}.strategies.ModelParallelStrategy.setup_environment", "{pl}.strategies.model_parallel:ModelParallelStrategy.setup_environment", "setup_environment", "Environment set up", "strategy", 120, "training", "process_group"),
    KnownCall("{fabric}.Fabric", "{fabric}.fabric:Fabric.__init__", "fabric", "Fabric ready", "trainer", 60, "trainer"),
    KnownCall("{fabric}.Fabric.launch", "{fabric}.fabric:Fabric.launch", "fabric_launch", "Fabric launched", "strategy", 120, "training", "process_group"),
    KnownCall("{fabric}.Fabric.setup", "{fabric}.fabric:Fabric.setup", "fabric_setup", "Model set up by Fabric", "strategy", 120, "training", "wrap"),
    # W&B and other loggers
    KnownCall("wandb.init", "wandb:init", "wandb_init", "W&B run started", "wandb", 60, "wandb_logger"),
    KnownCall("wandb.login", "wandb:login", "wandb_login", "Logged in to W&B", "wandb", 60),
    KnownCall("{pl}.loggers.WandbLogger", "{pl}.loggers.wandb:WandbLogger.__init__", "wandb_logger", "WandbLogger made", "wandb", 60),
    KnownCall("{pl}.loggers.MLFlowLogger", "{pl}.loggers.mlflow:MLFlowLogger.__init__", "mlflow_logger", "MLFlowLogger ready", "callbacks", 60),
    KnownCall("mlflow.start_run", "mlflow.tracking.fluent:start_run", "mlflow_run", "MLflow run started", "callbacks", 60),
    KnownCall("mlflow.set_experiment", "mlflow.tracking.fluent:set_experiment", "mlflow_experiment", "MLflow experiment found", "callbacks", 60),
    KnownCall("torch.utils.tensorboard.SummaryWriter", "torch.utils.tensorboard.writer:SummaryWriter.__init__", "tensorboard", "TensorBoard writer ready", "callbacks", 60),
    KnownCall("tensorboardX.SummaryWriter", "tensorboardX.writer:SummaryWriter.__init__", "tensorboard", "TensorBoard writer ready", "callbacks", 60),
    # Groups of ranks
    KnownCall("torch.distributed.init_process_group", f"{C10D}:init_process_group", "process_group", "Process group ready", "strategy", 120, "training", "process_group"),
    KnownCall("torch.distributed.new_group", f"{C10D}:new_group", "new_group", "New group ready", "strategy", 120),
    KnownCall("torch.distributed.barrier", f"{C10D}:barrier", "barrier", "Barrier passed", "strategy", 600),
    KnownCall("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed:DistributedDataParallel.__init__", "ddp", "DDP ready", "strategy", 120, "training", "wrap"),
    KnownCall("torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_sharded_data_parallel:FullyShardedDataParallel.__init__", "fsdp", "FSDP ready", "strategy", 300, "training", "wrap"),
    KnownCall("torch.distributed.fsdp.fully_shard", "torch.distributed.fsdp._fully_shard._fully_shard:fully_shard", "fsdp", "FSDP ready", "strategy", 300, "training", "wrap"),
    KnownCall("deepspeed.init_distributed", "deepspeed.comm.comm:init_distributed", "deepspeed_group", "DeepSpeed's group ready", "strategy", 120, "training", "process_group"),
    KnownCall("deepspeed.initialize", "deepspeed:initialize", "deepspeed", "DeepSpeed engine ready", "strategy", 600, "training", "wrap"),
    KnownCall("accelerate.Accelerator", "accelerate.accelerator:Accelerator.__init__", "accelerator", "Accelerator configured", "accelerator", 120, "accelerator"),
    KnownCall("accelerate.Accelerator.prepare", "accelerate.accelerator:Accelerator.prepare", "prepare", "Prepared by accelerate", "strategy", 300, "training", "wrap"),
    KnownCall("{fabric}.plugins.environments.MPIEnvironment.detect", "{fabric}.plugins.environments.mpi:MPIEnvironment.detect", "mpi_probe", "MPI probed", "launcher", 60),
    KnownCall("import mpi4py.MPI", "mpi4py.MPI:", "mpi_init", "MPI ready", "launcher", 120),
    # Ray: its driver asks for places, creates actors, and waits for what they answer
    KnownCall("import ray", "ray:", "import_ray", "ray imported", "interpreter", 120),
    KnownCall("ray.init", "ray._private.worker:init", "ray_init", "Ray started", "launcher", 120),
    KnownCall("ray.util.placement_group", "ray.util.placement_group:placement_group", "placement_group", "Placement group asked for", "launcher", 60),
    KnownCall("PlacementGroup.wait", "ray.util.placement_group:PlacementGroup.wait", "placement_ready", "Placement group ready", "launcher", 600),
    KnownCall("ray.ActorClass.remote", "ray.actor:ActorClass._remote", "ray_actor", "Actor asked for", "launcher", 120, once=True),
    KnownCall("ray.get", "ray._private.worker:get", "ray_get", "Answer of Ray there", "launcher", None),
    KnownCall("ray.wait", "ray._private.worker:wait", "ray_wait", "Answer of Ray there", "launcher", None, when=_has_no_limit),
    KnownCall("ray.train.torch.TorchTrainer.fit", "ray.train.v2.api.data_parallel_trainer:DataParallelTrainer.fit", "ray_fit", "Ray Train finished", "fit", None, ends_start=True),
    # Inference servers: what makes a process a rank, and the steps of one
    KnownCall("vllm.WorkerProc", "vllm.v1.executor.multiproc_executor:WorkerProc.__init__", "server_worker", "Worker loaded", "model", 1800, numbers=number_vllm_worker),
    KnownCall("vllm.Worker.init_device", "vllm.v1.worker.gpu_worker:Worker.init_device", "init_device", "Device ready", "accelerator", 300),
    KnownCall("vllm.Worker.load_model", "vllm.v1.worker.gpu_worker:Worker.load_model", "load_model", "Model loaded", "model", 1800),
    KnownCall("vllm.Worker.determine_available_memory", "vllm.v1.worker.gpu_worker:Worker.determine_available_memory", "memory", "Memory measured", "model", 600),
    KnownCall("vllm.Worker.initialize_from_config", "vllm.v1.worker.gpu_worker:Worker.initialize_from_config", "kv_cache", "KV cache ready", "model", 600),
    KnownCall("vllm.GPUModelRunner.capture_model", "vllm.v1.worker.gpu_model_runner:GPUModelRunner.capture_model", "capture_graphs", "CUDA graphs captured", "model", 1800),
    KnownCall("vllm.Worker.compile_or_warm_up_model", "vllm.v1.worker.gpu_worker:Worker.compile_or_warm_up_model", "warm_up", "Warmed up", "model", 1800, ends_start=True),
    KnownCall("vllm.CPUWorker.init_device", "vllm.v1.worker.cpu_worker:CPUWorker.init_device", "init_device", "Device ready", "accelerator", 300),
    KnownCall("vllm.CPUWorker.compile_or_warm_up_model", "vllm.v1.worker.cpu_worker:CPUWorker.compile_or_warm_up_model", "warm_up", "Warmed up", "model", 1800, ends_start=True),
    KnownCall("vllm.wait_for_engine_startup", "vllm.v1.engine.utils:wait_for_engine_startup", "engine_ready", "Engine ready", "model", 1800, ends_start=True),
    KnownCall("sglang.run_scheduler_process", "sglang.srt.managers.scheduler:run_scheduler_process", "server_scheduler", "Scheduler ended", "model", None, numbers=number_sglang_scheduler, lasts=True),
    KnownCall("sglang.Scheduler", "sglang.srt.managers.scheduler:Scheduler.__init__", "scheduler_ready", "Scheduler ready", "model", 1800, ends_start=True),
    KnownCall("sglang.ModelRunner.init_torch_distributed", "sglang.srt.model_executor.model_runner:ModelRunner.init_torch_distributed", "init_device", "Device ready", "accelerator", 300),
    KnownCall("sglang.ModelRunner.load_model", "sglang.srt.model_executor.model_runner:ModelRunner.load_model", "load_model", "Model loaded", "model", 1800),
    KnownCall("sglang.ModelRunner.init_memory_pool", "sglang.srt.model_executor.model_runner:ModelRunner.init_memory_pool", "kv_cache", "KV cache ready", "model", 600),
    KnownCall("sglang.ModelRunner.init_device_graphs", "sglang.srt.model_executor.model_runner:ModelRunner.init_device_graphs", "capture_graphs", "CUDA graphs captured", "model", 1800),
    # TensorRT-LLM, by its repository: its workers come of mpi4py, and say once that they are ready
    KnownCall("tensorrt_llm.GenerationExecutorProxy", "tensorrt_llm.executor.proxy:GenerationExecutorProxy._start_executor_workers", "engine_ready", "Engine ready", "model", 1800, ends_start=True),
    KnownCall("tensorrt_llm.GenerationExecutorRpcProxy", "tensorrt_llm.executor.rpc_proxy:GenerationExecutorRpcProxy.setup_engine_remote", "engine_ready", "Engine ready", "model", 1800, ends_start=True),
    # Trainers of reinforcement learning whose engines are processes of their own: TRL 1.16, verl 0.9.1, OpenRLHF 0.11.2
    KnownCall("trl.VLLMClient.check_server", "trl.generation.vllm_client:VLLMClient.check_server", "server_up", "Server is up", "launcher", 300),
    KnownCall("trl.VLLMClient.init_communicator", "trl.generation.vllm_client:VLLMClient.init_communicator", "weights_group", "Group for the weights ready", "strategy", 300),
    KnownCall("trl.VLLMGeneration.sync_weights", "trl.generation.vllm_generation:VLLMGeneration.sync_weights", "weights_sent", "Weights sent to the engine", "strategy", 600, once=True),
    KnownCall("trl.VLLMGeneration.generate", "trl.generation.vllm_generation:VLLMGeneration.generate", "first_rollout", "First texts of the engine there", "model", 1800, once=True),
    KnownCall("trl.AsyncGRPO.wait_for_server_ready", "trl.experimental.async_grpo.vllm_client:VLLMClient.wait_for_server_ready", "server_up", "Server is up", "launcher", 300),
    KnownCall("verl.RayResourcePool.get_placement_groups", "verl.single_controller.ray.base:RayResourcePool.get_placement_groups", "placement_ready", "Placement group ready", "launcher", 600),
    KnownCall("verl.RayWorkerGroup", "verl.single_controller.ray.base:RayWorkerGroup.__init__", "worker_group", "Workers of a group asked for", "launcher", 600),
    KnownCall("verl.initialize_global_process_group_ray", "verl.utils.distributed:initialize_global_process_group_ray", "worker_process_group", "Process group of the workers ready", "strategy", 300, "training", "process_group"),
    KnownCall("verl.RayPPOTrainer.init_workers", "verl.trainer.ppo.ray_trainer:RayPPOTrainer.init_workers", "rl_workers", "Workers and engines ready", "launcher", 1800),
    KnownCall("verl.RayPPOTrainer.fit", "verl.trainer.ppo.ray_trainer:RayPPOTrainer.fit", "rl_fit", "Training finished", "fit", None, ends_start=True),
    KnownCall("verl.PPOTrainer.init", "verl.trainer.ppo.v1.trainer_base:PPOTrainer.init", "rl_workers", "Workers and engines ready", "launcher", 1800),
    KnownCall("verl.PPOTrainer.fit", "verl.trainer.ppo.v1.trainer_base:PPOTrainer.fit", "rl_fit", "Training finished", "fit", None, ends_start=True),
    KnownCall("verl.CheckpointEngineManager.build_process_group", "verl.checkpoint_engine.base:CheckpointEngineManager.build_process_group", "weights_group", "Group for the weights ready", "strategy", 300),
    KnownCall("verl.launch_server_process", "verl.workers.rollout.sglang_rollout.http_server_engine:launch_server_process", "server_up", "Server is up", "launcher", 300),
    KnownCall("openrlhf.create_vllm_engines", "openrlhf.trainer.ray.vllm_engine:create_vllm_engines", "engines_asked", "Engines asked for", "launcher", 600),
    KnownCall("openrlhf.RayActorGroup", "openrlhf.trainer.ray.launcher:RayActorGroup.__init__", "worker_group", "Workers of a group asked for", "launcher", 600),
    KnownCall("openrlhf.DeepspeedStrategy.setup_distributed", "openrlhf.utils.deepspeed.deepspeed:DeepspeedStrategy.setup_distributed", "worker_process_group", "Process group of the workers ready", "strategy", 300, "training", "process_group"),
    KnownCall("openrlhf.ActorPPOTrainer._init_vllm_sync_group", "openrlhf.trainer.ray.ppo_actor:ActorPPOTrainer._init_vllm_sync_group", "weights_group", "Group for the weights ready", "strategy", 300),
    KnownCall("openrlhf.ActorPPOTrainer.broadcast_to_vllm", "openrlhf.trainer.ray.ppo_actor:ActorPPOTrainer.broadcast_to_vllm", "weights_sent", "Weights sent to the engine", "strategy", 600, once=True),
    # The machine and the compiler
    KnownCall("torch.cuda.init", "torch.cuda:_lazy_init", "cuda_init", "CUDA ready", "accelerator", 120, "accelerator", once=True),
    KnownCall("torch.compile", "torch:compile", "compile", "torch.compile called", "fit", 120),
    KnownCall("torch.compile (first call)", "torch._dynamo.convert_frame:_compile", "compile_first_call", "First compilation done", "fit", 600, once=True),
    KnownCall("torch.utils.cpp_extension.load", f"{_EXTENSION}:load", "extension", "C++ extension built", "model", 600),
    KnownCall("torch.utils.cpp_extension.load_inline", f"{_EXTENSION}:load_inline", "extension", "C++ extension built", "model", 600),
    KnownCall("torch.load", "torch.serialization:load", "checkpoint_load", "Checkpoint loaded", "model", 600),
    KnownCall("torch.distributed.checkpoint.load", "torch.distributed.checkpoint.state_dict_loader:load", "checkpoint_load", "Checkpoint loaded", "model", 600),
    KnownCall("safetensors.torch.load_file", "safetensors.torch:load_file", "checkpoint_load", "Checkpoint loaded", "model", 600),
    # The first of each in training
    KnownCall("torch.autograd.backward", "torch.autograd:backward", "first_backward", "First backward done", "fit", 300, "training", "first_backward", once=True),
)
# fmt: on

_MORE_THAN_ONCE = {row.attribute for row in _ROWS if row.module == C10D}
_FIRST_COLLECTIVES = tuple(
    KnownCall(
        f"torch.distributed.{name}",
        f"{C10D}:{name}",
        f"first_{name}",
        f"First {name} done",
        "strategy",
        600,
        once=True,
    )
    for name in (*COLLECTIVES, *POINT_TO_POINT)
    if name not in _MORE_THAN_ONCE
)
# Told by the optimizers themselves (steps.py).
FIRST_STEP = KnownCall(
    *("torch.optim.Optimizer.step", "torch.optim.optimizer:", "first_step", "First step done"),
    *("fit", 120, "training", "first_step"),
)


def _with_each_package(row: KnownCall) -> list[KnownCall]:
    """Return a row for each name that Lightning's packages go by."""
    for words, names in (*LIGHTNING.items(), *FABRIC.items()):
        if words in row.where:
            return [
                row._replace(
                    call=row.call.replace(words, name), where=row.where.replace(words, name)
                )
                for name in names
            ]
    return [row]


KNOWN_CALLS: tuple[KnownCall, ...] = tuple(
    one for row in (*_ROWS, *_FIRST_COLLECTIVES) for one in _with_each_package(row)
)
