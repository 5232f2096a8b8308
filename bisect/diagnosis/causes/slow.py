"""Slow, not hung: work that is long, done by one rank alone, or on a machine that is too small."""

from __future__ import annotations

import re

from ...base.compilers import name_compiler
from ..process.frames import format_frame, unqualified_name
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import format_place, format_process, others_wait_for_it

_COMPILES = (
    # Not what wraps code that is compiled already, or that is never to be (torch.compiler.disable).
    r"torch/_dynamo/(?!eval_frame|decorators|external_utils)\S+\.py",
    r"torch/(?:_inductor|_functorch|fx/experimental)/\S+\.py",
    r"triton/(?:compiler|runtime)/\S+\.py",
    r"torch/utils/cpp_extension\.py",
    r"(?:jax|xla|torch_xla|tvm|tensorrt\w*)/\S+\.py",
)
_LOADS = (
    r"safetensors/\S+\.py",
    r"torch/(?:serialization|_weights_only_unpickler)\.py",
    r"transformers/(?:modeling_utils|core_model_loading|integrations/\w+)\.py",
    r"torch/distributed/checkpoint/\S+\.py",
    r"(?:deepspeed|accelerate)/\S*(?:checkpoint|load|modeling)\S*\.py",
)
# Where accelerate brings what is offloaded to the device, and where it only runs what is there.
_BRINGS = r"accelerate/(?:hooks|utils/(?:offload|modeling))\.py"
_HOOKS = "accelerate/hooks.py"
_WRAPS = ("new_forward", "detach_hook")
_OFFLOADED = r"offloaded to the (?P<source>cpu and disk|disk and cpu|cpu|disk)"
_OVERLOADED = 0.4  # of the time ready, and without a core


# ---- signs ---------------------------------------------------------------------------------------


def _compiles(scene: Scene) -> Found | None:
    """A rank compiles (torch.compile, Triton, an extension), or its children do."""
    for look in scene.children:
        if name_compiler(look.name, look.command):
            return Found(
                f"its child {format_process(look)} compiles", {"what": format_process(look)}
            )
    frame = next((f for file in _COMPILES if (f := scene.frame(file)) is not None), None)
    if frame is None:
        return None
    return Found(f"it compiles: frame {format_frame(frame)}", {"what": format_frame(frame)})


def _loads(scene: Scene) -> Found | None:
    """A rank loads weights."""
    frame = next((f for file in _LOADS if (f := scene.frame(file)) is not None), None)
    if frame is None:
        return None
    return Found(f"it loads weights: frame {format_frame(frame)}", {"place": format_frame(frame)})


def _brings_weights(scene: Scene) -> Found | None:
    """A rank is in accelerate's code that brings weights which are not on its device."""
    looks = scene.subject.looks if scene.subject else ()
    mains = [look.main for look in looks]
    frames = [frame for main in mains if main is not None for frame in main.frames]
    own = [frame for frame in frames if re.search(rf"{_BRINGS}$", frame.file)]
    if not any(frame.file.endswith(_HOOKS) for frame in own):
        return None  # it loads
    brings = next((frame for frame in own if unqualified_name(frame.name) not in _WRAPS), None)
    if brings is not None:
        return Found(f"it brings weights: frame {format_frame(brings)}", {"source": "CPU or disk"})
    # Between two layers the looks meet only what is around all of them, as around those of a model
    # that is spread over GPUs.
    if not own or _said_to_be_offloaded(scene) is None:
        return None
    return Found(f"it is in accelerate's hooks: frame {format_frame(own[0])}", trust=0.6)


def _said_to_be_offloaded(scene: Scene) -> Found | None:
    """Accelerate or the pipeline has said that parameters are offloaded to the CPU or the disk."""
    said = scene.wrote(_OFFLOADED, [scene.subject] if scene.subject else ())
    if said is None:
        return None
    source = said[1]["source"]
    return Found(f"parameters are offloaded to the {source}", {"source": source})


def _initializes(scene: Scene) -> Found | None:
    """A rank fills new weights with numbers (torch.nn.init)."""
    frame = scene.frame(r"torch/nn/init\.py") or scene.frame(
        r".*", r"reset_parameters|_init_weights"
    )
    if frame is None:
        return None
    return Found(
        f"it initializes weights: frame {format_frame(frame)}", {"place": format_frame(frame)}
    )


def _imports(scene: Scene) -> Found | None:
    """A rank imports something."""
    frame = scene.frame(r"<frozen importlib\._bootstrap(?:_external)?>", "_find_and_load|get_data")
    call = scene.verdict.call or ""
    if frame is None or not call.startswith("import"):
        return None
    return Found(f"it is in {call}", {"what": f"`{call}`"})


def _moves(scene: Scene) -> Found | None:
    """It moves: what it does is said by what changed between the looks."""
    subject = scene.subject
    if subject is None or not (subject.moved or subject.busy):
        return None
    return Found(f"rank {subject.rank} {subject.moved or 'computes'}")


def _works_alone(scene: Scene) -> Found | None:
    """One rank, or a few, work while the others wait for them."""
    culprits, waiting = scene.verdict.ranks.culprit, scene.waiting_for_it()
    view = scene.view
    if not culprits or not waiting or len(culprits) > len(waiting) or view is None:
        return None
    return Found(
        f"rank {culprits[0]} is at work in {format_place(view)}", {"place": format_place(view)}
    )


def _waits_for_cores(scene: Scene) -> Found | None:
    """Ranks are ready to run, and wait for a core most of the time."""
    shares = []
    for facts in scene.living:
        samples = [look.sample for look in facts.looks if look.sample is not None]
        if len(samples) > 1 and samples[-1].at > samples[0].at:
            delayed = samples[-1].delayed - samples[0].delayed
            shares.append(delayed / (samples[-1].at - samples[0].at))
    if not shares or max(shares) < _OVERLOADED:
        return None
    cores = scene.machine.cores
    values = {"share": f"{max(shares):.0%}", "cores": cores if cores is not None else "too few"}
    return Found(f"ranks wait for a core {max(shares):.0%} of the time", values)


def _few_cores(scene: Scene) -> Found | None:
    """There are fewer cores than threads of ranks and workers that are ready to run."""
    cores = scene.machine.cores
    ready = [
        sum(task.state == "R" for task in looks[-1].kernel)
        for facts in scene.living
        for looks in (facts.looks, *facts.children)
        if looks
    ]
    running, threads = sum(map(bool, ready)), sum(ready)
    if cores is None or threads <= cores:
        return None
    who = f"{running} processes" if running > cores else f"{threads} threads of {running} processes"
    return Found(f"{who} want one of {cores} cores")


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="cold-compile",
        title="code is compiled for the first time",
        signs=(need(_compiles, 0.6), also(_moves, 0.4)),
        why="torch.compile, Triton or an extension compiles ({what}). The first step takes "
        "minutes; later starts find the result in a cache.",
        avoid=(
            "keep the caches: TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR",
            "compile once on one rank before the job, with the same shapes",
        ),
        references=("radixark/miles#3158",),
        outcomes=("slow",),
    ),
    KnownCause(
        id="slow-load",
        title="loading the weights takes long",
        signs=(
            need(_loads, 0.55),
            also(_moves, 0.4),
            unless(_compiles),
            unless(_brings_weights),
        ),
        why="It is at work in {place}: many gigabytes from storage, or on each rank once more.",
        avoid=(
            "weights on a local disk; safetensors in place of pickles",
            "load on one rank and broadcast (FSDP: sync_module_states=True), or build on meta",
        ),
        references=("huggingface/transformers#28139", "sgl-project/sglang#37806"),
        outcomes=("slow",),
    ),
    KnownCause(
        id="offloaded-weights",
        title="the weights are offloaded, and come to the device anew for each token",
        signs=(
            need(_brings_weights, 0.65),
            also(_said_to_be_offloaded, 0.5),
            also(_moves, 0.2),
            unless(_compiles),
        ),
        why="The model is larger than its device, so accelerate keeps parameters elsewhere "
        "({source}) and moves them for every forward pass: a token takes as long as that. "
        "Parameters on the device meta are expected then, and no error.",
        avoid=(
            "a smaller model, weights in 8 or 4 bits, or GPUs with room for all of it",
            "fewer new tokens; `--pipeline generation` says the seconds that each costs",
        ),
        toggles=(("max_new_tokens", "128"), ("quantization", "on"), ("device_map", "none")),
        references=("meta-llama/llama-cookbook#901", "xusenlinzy/api-for-open-llm#191"),
        outcomes=("slow",),
    ),
    KnownCause(
        id="slow-initialization",
        title="weights are initialized on the CPU",
        signs=(need(_initializes, 0.6), also(_moves, 0.3)),
        why="It fills new weights in {place}, on one core of the CPU.",
        avoid=(
            "build the model on the GPU or on meta (`with torch.device(...)`), then load weights",
            "a cheaper initialization than orthogonal_ for large matrices",
        ),
        references=("https://docs.pytorch.org/docs/stable/meta.html",),
        outcomes=("slow",),
    ),
    KnownCause(
        id="slow-import",
        title="importing takes long",
        signs=(need(_imports, 0.55), also(_moves, 0.35)),
        why="{what} reads thousands of small files; from a network file system each costs a way "
        "there and back.",
        avoid=(
            "the environment on a local disk, or in an image of a container",
            "`python -X importtime` says which package takes how long",
        ),
        references=("Garden-AI/rootstock#167", "wandb/wandb#5214"),
        outcomes=("slow",),
    ),
    KnownCause(
        id="one-rank-works-alone",
        title="one rank works for long while the others wait at a barrier",
        signs=(need(_works_alone, 0.45), need(_moves, 0.3), also(others_wait_for_it, 0.2)),
        why="It is at work in {place}, and the others wait until the time limit of their "
        "collective (10 minutes with NCCL, 30 with gloo) is over.",
        avoid=(
            "prepare data before the job, in a script of its own",
            "init_process_group(timeout=timedelta(hours=2)), or Lightning's prepare_data, whose "
            "barrier has no limit",
        ),
        references=(
            "Lightning-AI/pytorch-lightning#19448",
            "huggingface/transformers#17106",
            "NVIDIA/nccl#849",
        ),
        outcomes=("slow",),
    ),
    KnownCause(
        id="machine-overloaded",
        title="the machine has too few cores for what runs on it",
        signs=(need(_waits_for_cores, 0.6, proves=True), also(_few_cores, 0.5)),
        why="Ranks are ready and wait for a core {share} of the time; the machine or container "
        "has {cores}.",
        avoid=(
            "fewer workers (num_workers) and OMP_NUM_THREADS=1 for each rank",
            "more cores for each rank (`--cpus-per-task`); look for other jobs on that machine",
        ),
        toggles=(("num_workers", "0"),),
        references=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
        outcomes=("slow",),
    ),
)
