"""Toggles of inference servers: flags of their own command lines, and variables.

Spelled as in vllm/engine/arg_utils.py, vllm/envs.py and sglang/srt/server_args.py. Of several flags
that say the same the last one counts there (argparse).
"""

from __future__ import annotations

from ..base.process_roles import SGLANG, VLLM
from .toggle import AS_SET, ServerFlags, Toggle

_READ = "the server, from its command line"


def _one_flag(framework: str, value: str, *flags: str, sets: str = "") -> ServerFlags:
    """Return the spelling of a flag without words: the first of `flags` says `value`."""
    return ServerFlags(framework, flags, words=((value, (sets or flags[0],)),))


def _of_server(
    name: str,
    values: tuple[str, ...],
    cost: str,
    help: str,
    *servers: ServerFlags,
    default: str | None = "on",
    **more: object,
) -> Toggle:
    return Toggle(
        name=name,
        component="server",
        values=values,
        default=default,
        read_how=_READ,
        cost=cost,
        help=help,
        pipelines=(),
        servers=servers,
        **more,  # type: ignore[arg-type]  # by name
    )


SERVER = (
    _of_server(
        "eager",
        ("off", "on"),
        "on: no CUDA graphs and no compilation, so that each token takes longer",
        "whether the model runs eagerly: nothing is captured or compiled at the start",
        _one_flag(VLLM, "on", "--enforce-eager", "--no-enforce-eager"),
        _one_flag(SGLANG, "on", "--disable-cuda-graph"),
        default="off",
    ),
    _of_server(
        "custom_all_reduce",
        ("on", "off"),
        "off: NCCL adds up small tensors, more slowly",
        "the server's own all-reduce between GPUs of a node, which maps their memory",
        _one_flag(VLLM, "off", "--disable-custom-all-reduce", "--no-disable-custom-all-reduce"),
        _one_flag(SGLANG, "off", "--disable-custom-all-reduce"),
        gpu=True,
    ),
    _of_server(
        "prefix_cache",
        ("on", "off"),
        "off: what several prompts have in common is computed for each of them",
        "whether the KV cache of earlier prompts is kept for those that begin alike",
        _one_flag(VLLM, "off", "--no-enable-prefix-caching", "--enable-prefix-caching"),
        _one_flag(SGLANG, "off", "--disable-radix-cache"),
    ),
    _of_server(
        "chunked_prefill",
        ("on", "off"),
        "off: a long prompt holds up all others, and takes more memory at once",
        "whether long prompts are read in parts",
        _one_flag(VLLM, "off", "--no-enable-chunked-prefill", "--enable-chunked-prefill"),
        ServerFlags(
            SGLANG,
            ("--chunked-prefill-size",),
            takes=1,
            words=(("off", ("--chunked-prefill-size", "-1")), ("on", ())),
        ),
    ),
    _of_server(
        "executor",
        ("ray", "mp"),
        "mp: GPUs of one node only",
        "what starts the workers: Ray, as actors in a placement group, or multiprocessing",
        ServerFlags(VLLM, ("--distributed-executor-backend",), takes=1),
        default=None,
        one_node=True,
    ),
    _of_server(
        "multiprocessing_method",
        ("fork", "spawn"),
        "spawn: each worker imports everything anew, and the start takes longer",
        "how multiprocessing makes the engine and its workers",
        ServerFlags(VLLM, variable="VLLM_WORKER_MULTIPROC_METHOD"),
        default="fork",
    ),
    _of_server(
        "tensor_parallel_size",
        ("1",),
        "1: one GPU holds the whole model",
        "GPUs among which each layer is divided, a worker each; with 1 nobody waits for another",
        ServerFlags(VLLM, ("--tensor-parallel-size", "-tp"), takes=1),
        ServerFlags(SGLANG, ("--tp-size", "--tensor-parallel-size", "--tp"), takes=1),
        default="1",
        accepts="count",
        kind="probe",
    ),
    _of_server(
        "server_dtype",
        ("auto", "float32"),
        "float32: weights take twice the memory, and kernels for half of it are not used",
        "what weights and activations are in: auto as the model has it, float16, bfloat16, float32",
        ServerFlags(VLLM, ("--dtype",), takes=1),
        ServerFlags(SGLANG, ("--dtype",), takes=1),
        default="auto",
        accepts="text",
    ),
    _of_server(
        "attention_backend",
        (AS_SET, "triton"),
        "triton: kernels that Triton compiles here, often slower than those made for the GPU",
        "the kernels of attention (flashinfer, fa3, ...); with triton nothing is built by nvcc",
        ServerFlags(
            VLLM,
            ("--attention-backend",),
            takes=1,
            words=(("triton", ("--attention-backend", "TRITON_ATTN")),),
        ),
        ServerFlags(SGLANG, ("--attention-backend",), takes=1),
        default=AS_SET,
        accepts="text",
        gpu=True,
    ),
)
