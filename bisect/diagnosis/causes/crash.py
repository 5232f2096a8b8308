"""Ends that people take for hangs: what a rank died of while the others waited for it.

The family of compilation that fails is here too: what runs as it is, and not through
torch.compile.
"""

from __future__ import annotations

import re
import signal

from .known_cause import Found, KnownCause, Scene, also, need, unless
from .rendezvous import finds_no_shared_file, masters_differ
from .signs import ended_with, native_in

_SEGFAULTS = (-signal.SIGSEGV, 128 + signal.SIGSEGV)
_FILE = r"file://(?P<file>/[^\s'\",)]+)|\bFileStore\(['\"](?P<store>[^'\"]+)"


# ---- signs ---------------------------------------------------------------------------------------

_on_meta = ended_with(
    r"expected device meta but got \S+|Tensor on device meta is not on the expected device"
    r"|Cannot copy out of meta tensor|Tensor on device \S+ is not on the expected device meta"
    r"|meta tensors? (?:cannot|can't)[^\n]{0,60}",
    "It ended because a tensor is on the device meta",
)
_port_taken = ended_with(
    r"EADDRINUSE|[Aa]ddress already in use|failed to listen on any local network address"
    r"(?:[^\n]{0,40}port: (?P<port>\d+))?",
    "It ended because the port is in use",
)
_same_gpu = ended_with(
    r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<other>\d+)[^\n]{0,60}",
    "NCCL found two ranks on one GPU",
)
_no_main_guard = ended_with(
    r"An attempt has been made to start a new process before the\s+current process has finished",
    "It ended because a child imported the script and started children itself",
)
_failed_to_connect = ended_with(
    r"connectFullMesh|Connection refused|already been (?:used|initiali[sz]ed)|failed to connect"
    r"|Connection reset|Broken pipe|wait timeout|Timed out",
    "It could not connect to the peers that the store names",
)
_connects = native_in(
    r"gloo::\S*(?:connectFullMesh|createAndConnectAllPairs|waitUntilConnected)",
    "It connects to the peers that the store names",
)


def _by_a_file(scene: Scene) -> Found | None:
    """The process group is made over a file:// store."""
    lines = [
        value for frame in scene.frames for name, value in frame.locals if name == "init_method"
    ]
    lines += [
        one.shape
        for facts in scene.culprits
        for log in facts.collectives
        for one in log.operations
        if one.kind == "init_process_group"
    ]
    match = next((m for value in lines if (m := re.search(_FILE, value))), None)
    if match is None:
        found = scene.wrote(_FILE)
        match = found[1] if found else None
    if match is None:
        return None
    file = match["file"] or match["store"]
    return Found(f"the store is {file}", {"file": file})


def _peers_not_there(scene: Scene) -> Found | None:
    """It connects, or could not connect, to the peers that the store names."""
    return _connects(scene) or _failed_to_connect(scene)


def _segfault(scene: Scene) -> Found | None:
    """A rank ended by a segmentation fault."""
    broken = [r for r in scene.culprits if r.status in _SEGFAULTS]
    return Found(f"rank {broken[0].rank} ended by SIGSEGV") if broken else None


def _debug_is_detail(scene: Scene) -> Found | None:
    """The variable TORCH_DISTRIBUTED_DEBUG asks for the most detail."""
    for facts in scene.culprits:
        if facts.environment.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
            return Found("the debugging of torch.distributed is set to its highest level")
    return None


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="meta-device",
        title="a part of the model is on the device meta: it has no data",
        signs=(need(_on_meta, 0.9, proves=True),),
        why="device_map or init_empty_weights left parameters on meta, for they are to be loaded "
        "or offloaded later; training, LoRA's adapters and gradient checkpointing need them for "
        "real.",
        avoid=(
            "device_map=None and model.to(device): the model must fit on the GPU",
            "FSDP or ZeRO-3 for what does not fit, in place of CPU offload by device_map",
        ),
        toggles=(("device_map", "none"),),
        references=(
            "ymcui/Chinese-LLaMA-Alpaca#734",
            "meta-pytorch/opacus#737",
            "zai-org/ChatGLM2-6B#254",
        ),
        outcomes=("crash",),
    ),
    KnownCause(
        id="port-in-use",
        title="the port is in use",
        signs=(need(_port_taken, 0.9, proves=True),),
        why="The store, or a server of the job, is to listen at a port at which another process "
        "listens already: a second job, or what is left of an earlier one.",
        avoid=(
            "torchrun --standalone, or --rdzv-endpoint=localhost:0: finds a free port",
            "another MASTER_PORT for each job on this machine",
            "`ss -ltnp` says who has it; end what is left of an earlier attempt",
        ),
        references=("pytorch/pytorch#126510", "meta-pytorch/torchtune#392"),
        outcomes=("crash",),
    ),
    KnownCause(
        id="same-gpu",
        title="two ranks use the same GPU",
        signs=(need(_same_gpu, 0.95, proves=True),),
        why="Ranks {one} and {other} chose the same GPU; NCCL refuses.",
        avoid=(
            "torch.cuda.set_device(LOCAL_RANK) before the process group is made",
            "as many ranks a node as it has visible GPUs (CUDA_VISIBLE_DEVICES hides some)",
        ),
        references=("NVIDIA/Megatron-LM#661", "horovod/horovod#3929"),
        outcomes=("crash",),
    ),
    KnownCause(
        id="spawn-without-guard",
        title="the script starts processes while it is imported by one of them",
        signs=(need(_no_main_guard, 0.95, proves=True),),
        why="Processes started by spawn or forkserver import the script again. Without a main "
        "guard that import starts processes again.",
        avoid=(
            'put what starts processes below `if __name__ == "__main__":`',
            "num_workers=0, or the start method fork, until it is there",
        ),
        toggles=(("num_workers", "0"),),
        references=("huggingface/datasets#7756", "argilla-io/distilabel#685"),
        outcomes=("crash",),
    ),
    KnownCause(
        id="debug-detail",
        title="the debugging of torch.distributed itself breaks the job",
        signs=(need(_debug_is_detail, 0.5), need(_segfault, 0.6)),
        why="The highest level of that debugging wraps every group in another one. With torch 2.13 "
        "a healthy job of two ranks with DDP over gloo dies of it.",
        avoid=("unset TORCH_DISTRIBUTED_DEBUG, or set it to INFO",),
        toggles=(("torch_distributed_debug", "OFF"),),
        references=("pytorch/pytorch#129672",),
        outcomes=("crash",),
    ),
    KnownCause(
        id="stale-rendezvous-file",
        title="a file:// store of an earlier run is still there",
        signs=(
            need(_by_a_file, 0.55),
            need(_peers_not_there, 0.45),
            unless(masters_differ),
            unless(finds_no_shared_file),
        ),
        why="The file of the store still has the addresses of an earlier run, and the ranks try to "
        "connect to processes that are gone.",
        avoid=("rm {file}", "another file for each run; env:// under torchrun needs none"),
        references=("pytorch/pytorch#13708", "pytorch/pytorch#48704"),
        outcomes=("crash", "hang"),
    ),
)


# ---- signs ---------------------------------------------------------------------------------------

_fake_for_a_number = ended_with(
    r"value of type '(?:int|float|bool|SymInt)' for argument '(?P<argument>\w{1,60})' but instead "
    r"found type 'FakeTensor'"
    r"|Unable to cast Python instance of type <class '[\w.]{0,80}FakeTensor'> to C\+\+ type",
    "It ended in a compilation: a FakeTensor stands where a function of C++ takes a number",
)
_packed_attention = ended_with(
    r"flash_attn\w{0,40}varlen\w{0,40}|max_seqlen_[qk]",
    "The function is flash attention for rows of different lengths, as packed samples have them",
)

# ---- causes --------------------------------------------------------------------------------------

COMPILATION_CAUSES = (
    KnownCause(
        id="fake-tensor",
        title="a compiled forward gives a function a tensor in the place of a number",
        signs=(need(_fake_for_a_number, 0.9, proves=True), also(_packed_attention, 0.5)),
        why="While torch.compile traces a forward, tensors have no values. A function of C++ that "
        "takes a number, and gets a tensor with one element, reads its value when nothing is "
        "compiled; there it cannot. Flash attention for packed samples is called so, with the "
        "length of the longest sample.",
        avoid=(
            "samples that are not packed: flash attention for rows of one length is called then",
            "attn_implementation='sdpa' in place of flash attention",
            "`.item()` on that number before the call, where the code is yours; or a newer release "
            "of what calls it",
        ),
        toggles=(("packing", "off"), ("attention", "sdpa"), ("compile", "off")),
        references=(
            "Dao-AILab/flash-attention#1351",
            "huggingface/transformers#35588",
            "huggingface/transformers#44962",
        ),
        outcomes=("crash",),
    ),
)
