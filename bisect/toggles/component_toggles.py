"""The toggles of the parts of a job: libraries, data, model, how it is launched."""

from __future__ import annotations

from ..base.pipeline import PIPELINES
from ..base.variables import BARRIER_HELP, BARRIER_MODES, DEFAULT_BARRIER_MODE
from .toggle import ANY, AS_SET, EXCEPTED, OFF, Toggle, Variant

WANDB = Toggle(
    name="wandb",
    component="wandb",
    flag="--wandb",
    values=("every-rank", "logger", "rank0", "offline", "off"),
    default="logger",
    read_how="wandb.init, through WandbLogger.experiment",
    cost="offline: no live charts until `wandb sync`; off: none at all",
    help="who starts W&B: wandb.init on every rank; WandbLogger on every rank, as Lightning "
    "users do (starts it on rank 0); rank 0 alone; the same offline; no rank",
    environment=(("offline", "WANDB_MODE", "offline"), ("off", "WANDB_MODE", "disabled")),
    in_code=(
        ("rank0", "wandb.init(mode='disabled') on every rank but 0"),
        ("offline", "wandb.init(mode='offline')"),
        ("off", "wandb.init(mode='disabled')"),
    ),
    reports_itself=True,
)

STRATEGY = Toggle(
    name="strategy",
    component="strategy",
    flag="--strategy",
    values=("auto", "ddp"),
    default="auto",
    read_how="the Trainer's constructor",
    cost="a larger model may no longer fit",
    help="Lightning's strategy: auto, ddp, or any other that it registers",
    accepts="strategy",
    in_code=((ANY, "Trainer(strategy='VALUE')"),),
    libraries=("lightning", "pytorch_lightning", "lightning_fabric"),
    reports_itself=True,
)

FILES = Toggle(
    name="make_logs_dir",
    component="filesystem",
    flag="--make-logs-dir",
    values=("all", "rank0"),
    default="all",
    read_how="the step that makes the logs directory",
    cost="the others of its node wait for the first",
    help="who makes the logs directory: every rank, or the first of each node while others wait",
)

HUB = (
    Toggle(
        name="hub",
        component="hub",
        flag="--hub",
        values=("online", "rank0-first", "offline"),
        default="online",
        read="import",
        read_how="huggingface_hub.constants, once",
        cost="offline: what is loaded must be in the cache",
        help="who asks the Hugging Face hub: every rank at once; the first of each node first, "
        "the others from its cache; no rank (HF_HUB_OFFLINE)",
        pipelines=("startup", "generation", "finetuning", "replay"),
        environment=(("offline", "HF_HUB_OFFLINE", "1"),),
        needs=("--tokenizer", "--model"),
        reports_itself=True,
    ),
    Toggle(
        name="proxy",
        component="network",
        values=(AS_SET, EXCEPTED, OFF),
        default=AS_SET,
        read_how="each client before it connects; gRPC and wandb-core when they start",
        cost="what only the proxy reaches is no longer reached",
        help="the proxy of the environment: as it is set; not for one host (excepted:HOST is added "
        "to NO_PROXY); for none (http_proxy, https_proxy and all_proxy are emptied)",
        pipelines=PIPELINES,
        accepts="host",
    ),
)

DATA = (
    Toggle(
        name="num_workers",
        component="data",
        flag="--num-workers",
        values=("0",),
        default="0",
        read_how="the DataLoader's constructor",
        cost="0: batches are made by the rank itself, more slowly",
        help="worker processes of each rank's DataLoader",
        accepts="count",
        in_code=((ANY, "DataLoader(num_workers=VALUE)"),),
        reports_itself=True,
    ),
    Toggle(
        name="worker_start",
        component="data",
        flag="--worker-start",
        values=("fork", "forkserver", "spawn"),
        default="fork",
        read_how="the DataLoader's constructor",
        cost="each worker imports what it needs: seconds at the start of an epoch",
        help="how DataLoader workers are started",
        needs=("--num-workers",),
        in_code=((ANY, "DataLoader(multiprocessing_context='VALUE')"),),
        reports_itself=True,
    ),
    Toggle(
        name="tokenizers_parallelism",
        component="data",
        flag="--tokenizers-parallelism",
        values=("on", "off"),
        read_how="the tokenizers library, at each batch of texts",
        cost="tokenizing uses one core",
        help="sets TOKENIZERS_PARALLELISM; left as the environment has it by default",
        environment=(
            ("on", "TOKENIZERS_PARALLELISM", "true"),
            ("off", "TOKENIZERS_PARALLELISM", "false"),
        ),
        reports_itself=True,
    ),
    Toggle(
        name="pin_memory",
        component="data",
        flag="--pin-memory",
        values=("on", "off"),
        default="off",
        read_how="the DataLoader's constructor; a thread of the rank pins each batch",
        cost="copies to the GPU are slower and wait",
        help="whether the DataLoader pins its batches, in a thread of its own",
        gpu=True,
        in_code=(("on", "DataLoader(pin_memory=True)"), ("off", "DataLoader(pin_memory=False)")),
        reports_itself=True,
    ),
    Toggle(
        name="packing",
        component="data",
        flag="--packing",
        values=("on", "off"),
        default="off",
        read_how="the function that makes a batch",
        cost="padding is computed too: fewer tokens a second",
        help="whether texts are joined into full rows: ranks get batches of different sizes",
        pipelines=("startup", "replay"),
        variants=(
            Variant(
                "replay",
                values=("on", AS_SET, "off"),
                default=AS_SET,
                help="whether the samples of an input are packed into one row: they are; as it was "
                "captured; each has a row of its own, padded. Of inputs as transformers names them",
            ),
        ),
        in_code=(("on", "SFTConfig(packing=True)"), ("off", "SFTConfig(packing=False)")),
        reports_itself=True,
    ),
)

MODEL = (
    Toggle(
        name="generation_config",
        component="hub",
        flag="--generation-config",
        values=("from-pretrained", "local-files-only", "direct"),
        default="from-pretrained",
        read_how="GenerationConfig.from_pretrained",
        cost="local-files-only: it must be in the cache; direct: your values, not the model's",
        help="where the generation config comes from: the hub; its cache; the constructor alone",
        needs=("--model",),
        pipelines=("generation",),
        in_code=(
            ("local-files-only", "GenerationConfig.from_pretrained(..., local_files_only=True)"),
            ("direct", "GenerationConfig(...)"),
        ),
        reports_itself=True,
    ),
    Toggle(
        name="device_map",
        component="model",
        flag="--device-map",
        values=("auto", "none"),
        default="none",
        read_how="AutoModelForCausalLM.from_pretrained",
        cost="the model must fit on each rank's own device",
        help="who places a model's layers: accelerate, over all devices that a rank sees; none: "
        "the Trainer moves the whole of it",
        needs=("--model",),
        pipelines=("startup", "generation", "finetuning"),
        variants=(
            Variant(
                "finetuning",
                needs=(),
                help="who places a model's layers: accelerate, over all devices and, where these "
                "are full (--max-memory), the CPU and the disk; none: it is whole on one device",
            ),
            Variant(
                "generation",
                values=("cpu-offload", "auto", "none"),
                default="auto",
                needs=(),
                help="who places a model's layers: accelerate, all of them on the CPU, from where "
                "each comes to the device when it is its turn; accelerate, over all devices and, "
                "where these are full, the CPU and the disk; none: it is whole on one device",
            ),
        ),
        in_code=(("none", "from_pretrained(..., device_map={'': LOCAL_RANK})"),),
        reports_itself=True,
    ),
    Toggle(
        name="attention",
        component="model",
        flag="--attention",
        values=("sdpa", "eager"),
        read_how="the model's constructor",
        cost="attention takes more memory and time",
        help="how attention is computed: torch's fused kernels, or plain matrix products; left to "
        "the model by default",
        pipelines=("startup", "replay"),
        variants=(
            Variant(
                "replay",
                values=("flash", "sdpa", "eager"),
                help="how attention is computed: flash attention, torch's fused kernels, or plain "
                "matrix products; left to the module by default",
            ),
        ),
        in_code=((ANY, "from_pretrained(..., attn_implementation='VALUE')"),),
        reports_itself=True,
    ),
    Toggle(
        name="gradient_checkpointing",
        component="fit",
        flag="--gradient-checkpointing",
        values=("on", "off"),
        default="off",
        read_how="the model, before training",
        cost="all activations stay in memory: the batch may no longer fit",
        help="whether the backward pass computes activations again rather than keep them",
        pipelines=("startup", "finetuning"),
        in_code=(("off", "TrainingArguments(gradient_checkpointing=False)"),),
        reports_itself=True,
    ),
    Toggle(
        name="compile",
        component="fit",
        flag="--compile",
        values=("on", "off"),
        default="off",
        read_how="torch.compile, at the first batch",
        cost="steps are slower; the first is faster",
        help="whether the model inside the LightningModule goes through torch.compile",
        pipelines=("startup", "replay"),
        variants=(
            Variant(
                "replay",
                values=("deepcompile", "inductor", "eager", "off"),
                help="how the module is compiled: by DeepSpeed's DeepCompile; by torch.compile and "
                "inductor; traced by torch.compile and run as it is; not at all",
            ),
        ),
        environment=(("off", "TORCHDYNAMO_DISABLE", "1"),),
        reports_itself=True,
    ),
    Toggle(
        name="callbacks",
        component="callbacks",
        flag="--callbacks",
        values=("memory", "none"),
        default="memory",
        read_how="the Trainer's constructor",
        cost="memory is not logged",
        help="callbacks of the Trainer: that of step 10 (yours, with --use callbacks=...), or none",
        in_code=(("none", "Trainer(callbacks=...) without those that only watch"),),
        reports_itself=True,
    ),
)

# They make nearly every hang vanish, so they describe and do not accuse.
PROBES = (
    Toggle(
        name="backend",
        component="strategy",
        flag="--backend",
        values=("auto", "nccl", "gloo"),
        default="auto",
        kind="probe",
        describes=True,
        read_how="torch.distributed.init_process_group",
        cost="gloo is far slower between GPUs",
        help="the process group's backend; auto: Lightning's choice for the accelerator",
        gpu=True,
        in_code=((ANY, "init_process_group(backend='VALUE')"),),
        reports_itself=True,
    ),
    Toggle(
        name="accelerator",
        component="accelerator",
        flag="--accelerator",
        values=("auto", "gpu", "cpu"),
        default="auto",
        kind="probe",
        describes=True,
        read_how="the Trainer's constructor; CUDA_VISIBLE_DEVICES when CUDA starts",
        cost="cpu: no GPU",
        help="what the model runs on",
        pipelines=("startup", "generation", "finetuning", "replay"),
        environment=(("cpu", "CUDA_VISIBLE_DEVICES", ""),),
        gpu=True,
        in_code=(("cpu", "Trainer(accelerator='cpu')"),),
    ),
    Toggle(
        name="world_size",
        component="launcher",
        values=("2", "1"),
        kind="probe",
        describes=True,
        unit="ranks",
        read="start",
        read_how="the launcher",
        cost="training takes as many times longer",
        help="how many ranks are started, on one node; 1: none waits for another",
        pipelines=PIPELINES,
        accepts="count",
        launcher=True,
    ),
    Toggle(
        name="barriers",
        component="fit",
        flag="--barriers",
        values=BARRIER_MODES,
        default=DEFAULT_BARRIER_MODE,
        kind="probe",
        shows_races="off",
        read="start",
        read_how="the walk, after each checkpoint",
        cost="ranks wait for one another between steps",
        pipelines=PIPELINES,
        help=BARRIER_HELP,
    ),
)
