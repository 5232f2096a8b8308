"""The table of toggles, and the arguments of the command line that are made of it. Those of parts
of a job are in component_toggles.py; here are those of the pipelines that generate, fine-tune and
replay, and those that are a variable of the environment, as people try them by hand.

What NCCL's say and cost: its user guide, "Environment Variables"
(docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html); torch's: its pages on distributed
(TORCH_DISTRIBUTED_DEBUG, GLOO_SOCKET_IFNAME) and on CUDA (CUDA_LAUNCH_BLOCKING).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ..base.argument_types import choice, count
from ..base.pipeline import PIPELINES
from .component_toggles import DATA, FILES, HUB, MODEL, PROBES, STRATEGY, WANDB
from .server_toggles import SERVER
from .toggle import ANY, AS_SET, Toggle, Variant

_GROUP = "torch.distributed.init_process_group"


def _of_nccl(
    variable: str, values: tuple[str, ...], cost: str, help: str, one_node: bool = False
) -> Toggle:
    return Toggle(
        name=variable.lower(),
        component="strategy",
        variable=variable,
        values=values,
        default=values[0],
        read_how="NCCL, when a communicator is made: at the first collective",
        cost=cost,
        one_node=one_node,
        help=help,
        accepts="text" if AS_SET in values else "choice",
        gpu=True,
        reports_itself=True,
    )


NETWORK = (
    _of_nccl(
        "NCCL_P2P_DISABLE",
        ("0", "1"),
        "1: GPUs of a node exchange through the host's memory, at a fraction of the speed",
        "whether NCCL leaves out direct access between GPUs (NVLink, PCI)",
    ),
    _of_nccl(
        "NCCL_IB_DISABLE",
        ("0", "1"),
        "1: between nodes plain sockets, several times slower; within a node nothing",
        "whether NCCL leaves out InfiniBand and RoCE",
    ),
    _of_nccl(
        "NCCL_SHM_DISABLE",
        ("0", "1"),
        "1: GPUs without direct access exchange over the network, even within a node",
        "whether NCCL leaves out shared memory (/dev/shm)",
    ),
    _of_nccl(
        "NCCL_NVLS_ENABLE",
        (AS_SET, "0"),
        "0: reductions are done by the GPUs and not by the NVSwitch, more slowly",
        "whether NCCL uses NVLink SHARP, which takes memory of its own on each GPU",
    ),
    _of_nccl(
        "NCCL_SOCKET_IFNAME",
        (AS_SET, "lo"),
        "lo: one node only; elsewhere name the interface that the nodes share",
        "the network interfaces that NCCL may use",
        one_node=True,
    ),
    Toggle(
        name="gloo_socket_ifname",
        component="strategy",
        variable="GLOO_SOCKET_IFNAME",
        values=(AS_SET, "lo"),
        default=AS_SET,
        read_how=_GROUP,
        cost="lo: one node only; elsewhere name the interface that the nodes share",
        one_node=True,
        help="the network interface that gloo may use",
        accepts="text",
        reports_itself=True,
    ),
    Toggle(
        name="torch_distributed_debug",
        component="strategy",
        variable="TORCH_DISTRIBUTED_DEBUG",
        values=("DETAIL", "INFO", "OFF"),
        default="OFF",
        read_how=_GROUP,
        cost="OFF: torch no longer compares what ranks call",
        help="torch's own checks of collectives; DETAIL adds a group and a barrier of its own",
        reports_itself=True,
    ),
)

THREADS = (
    Toggle(
        name="omp_num_threads",
        component="data",
        variable="OMP_NUM_THREADS",
        values=("1",),
        read="import",
        read_how="OpenMP, when torch is loaded; torchrun sets 1 itself for several ranks",
        cost="1: what runs on the CPU uses one core a rank",
        help="threads of OpenMP in each rank; with 1 there is no pool that a fork could break",
        pipelines=PIPELINES,
        accepts="count",
    ),
    Toggle(
        name="cuda_launch_blocking",
        component="accelerator",
        variable="CUDA_LAUNCH_BLOCKING",
        values=("0", "1"),
        default="0",
        kind="probe",
        read_how="CUDA, when it starts",
        cost="1: the CPU waits for every kernel, several times slower",
        help="whether each kernel is waited for: it changes when everything happens",
        pipelines=PIPELINES,
        gpu=True,
    ),
)


PRELOAD = Toggle(
    name="preload",
    component="server",
    values=(AS_SET, "off"),
    default=AS_SET,
    read="start",
    read_how="the loader, when a program starts",
    cost="off: what the library does, a limit on the GPU's memory, say, is not done",
    help="libraries that are loaded before all others (LD_PRELOAD), which stand between a program "
    "and its driver",
    pipelines=PIPELINES,
    environment=(("off", "LD_PRELOAD", ""),),
    set_by="LD_PRELOAD",
)


_GENERATION = ("generation",)
_GENERATE = "generate()"

GENERATION = (
    Toggle(
        name="max_new_tokens",
        component="generation",
        flag="--max-new-tokens",
        values=("512", "256", "128"),
        default="512",
        read_how=_GENERATE,
        cost="answers end sooner, if need be in the middle of a sentence",
        help="tokens that a step generates at most; more than 512 are cut to 512, and that is said",
        accepts="count",
        pipelines=_GENERATION,
        in_code=((ANY, "generate(..., max_new_tokens=VALUE)"),),
        reports_itself=True,
    ),
    Toggle(
        name="max_length",
        component="generation",
        flag="--max-length",
        values=("2048", "1024", "512"),
        default="2048",
        read_how="the tokenizer, which cuts what is longer",
        cost="what a longer prompt says beyond it is not read",
        help="tokens of a prompt that are read at most",
        accepts="count",
        pipelines=_GENERATION,
    ),
    Toggle(
        name="do_sample",
        component="generation",
        flag="--do-sample",
        values=("on", "off"),
        read_how=_GENERATE,
        cost="off: the same answer each time",
        help="whether tokens are drawn, or the likeliest taken; left to the model's generation "
        "config by default",
        pipelines=_GENERATION,
        in_code=(
            ("on", "generate(..., do_sample=True)"),
            ("off", "generate(..., do_sample=False)"),
        ),
        reports_itself=True,
    ),
    Toggle(
        name="quantization",
        component="model",
        flag="--quantization",
        values=("on", "off"),
        default="off",
        read_how="AutoModelForCausalLM.from_pretrained",
        cost="off: weights take two to four times the memory",
        help="whether weights are held in 8 bits, by the first of bitsandbytes, torchao and "
        "optimum-quanto that is installed",
        pipelines=(*_GENERATION, "finetuning"),
        variants=(
            Variant(
                "finetuning",
                values=("4bit", "8bit", "off"),
                help="whether the weights, beside which LoRA's adapters are trained, are held in 4 "
                "or 8 bits (bitsandbytes)",
            ),
        ),
    ),
)


_FINETUNING = ("finetuning",)

FINETUNING = (
    Toggle(
        name="precision",
        component="model",
        flag="--precision",
        values=("fp16", "fp16-mixed", "bf16", "bf16-mixed", "fp32"),
        default="fp32",
        read_how="from_pretrained, and TrainingArguments",
        cost="fp32: weights, gradients and activations take twice the memory, and more time",
        help="what weights are held and computed in: float16 without a scaler, mixed with one; "
        "bfloat16, mixed; float32",
        pipelines=(*_FINETUNING, "replay"),
        variants=(
            Variant(
                "replay",
                values=("bf16", AS_SET, "fp32"),
                default=AS_SET,
                help="what weights and inputs are in: bfloat16; as the module was built; float32",
            ),
        ),
    ),
    Toggle(
        name="lora_rank",
        component="lora",
        flag="--lora-rank",
        values=("128", "64", "16", "8"),
        default="8",
        read_how="peft.LoraConfig",
        cost="the adapters learn less",
        help="rank of LoRA's adapters; 0: none, all weights are trained",
        accepts="count",
        pipelines=_FINETUNING,
    ),
    Toggle(
        name="sequence_length",
        component="data",
        flag="--sequence-length",
        values=("2048", "1024", "512", "128", "32"),
        default="128",
        read_how="the step that makes rows of tokens",
        cost="the model sees less at once: it is another training",
        help="tokens of each example",
        accepts="count",
        pipelines=_FINETUNING,
    ),
    Toggle(
        name="micro_batch",
        component="data",
        flag="--micro-batch",
        values=("8", "4", "2", "1"),
        default="8",
        read_how="TrainingArguments(per_device_train_batch_size)",
        cost="steps are slower: as many examples each, fewer at once",
        help="examples at once; gradients are added up to --batch-size before each step",
        accepts="count",
        pipelines=_FINETUNING,
    ),
)


REPLAY = (
    Toggle(
        name="zero",
        component="strategy",
        flag="--zero",
        values=("3", "2", "1", "0", "off"),
        default="off",
        read_how="deepspeed.initialize",
        cost="optimizer states, gradients and weights are whole on each rank",
        help="DeepSpeed's ZeRO stage around the module; off: no DeepSpeed",
        pipelines=("replay",),
    ),
)


TOGGLES: tuple[Toggle, ...] = (
    *(WANDB, STRATEGY, FILES),
    *(*HUB, *DATA, *MODEL),
    *GENERATION,
    *FINETUNING,
    *REPLAY,
    *(*NETWORK, *THREADS),
    *SERVER,
    PRELOAD,
    *PROBES,
)


def toggles_of(pipeline: str) -> tuple[Toggle, ...]:
    """Return the toggles that matter to a pipeline of ours, as it has them."""
    return tuple(entry.read_by(pipeline) for entry in TOGGLES if pipeline in entry.pipelines)


def showing_races(table: Iterable[Toggle]) -> dict[str, str]:
    """Return what toggles are set to where a hang comes and goes: another value may hide a race."""
    return {entry.name: entry.shows_races for entry in table if entry.shows_races}


def toggle(name: str) -> Toggle:
    """Return the toggle of that name. Raises KeyError."""
    for entry in TOGGLES:
        if entry.name == name:
            return entry
    raise KeyError(name)


def add_toggles(parser: argparse._ActionsContainer, table: Iterable[Toggle]) -> None:
    """Add the arguments of all toggles of a pipeline that have one."""
    for entry in table:
        if entry.flag and entry.name != "barriers":  # that is an option of the watch
            add_toggle(parser, entry)


def add_toggle(parser: argparse._ActionsContainer, entry: Toggle) -> None:
    """Add the argument of a toggle."""
    if entry.accepts == "choice":
        read, metavar = choice(entry.flag, entry.values), "|".join(entry.values)
    elif entry.accepts == "count":
        read, metavar = count(entry.flag), "N"
    else:
        read, metavar = str, f"{'|'.join(entry.values)}|..."
    default = int(entry.default or 0) if entry.accepts == "count" else entry.default
    shown = "" if entry.default is None else f" ({entry.default})"
    parser.add_argument(
        entry.flag, metavar=metavar, type=read, default=default, help=entry.help + shown
    )
