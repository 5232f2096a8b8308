"""The environment block: the variables that decide how ranks find and treat each other.

It shows what is known of GPUs and of the process group once torch is loaded, and never loads it
for that: importing torch is a step that hangs too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .launchers import DIALECTS
from .masking import mask

_OF_LAUNCHERS = {
    family: tuple(n for words in DIALECTS.values() if words.family == family for n in words.shown)
    for family in dict.fromkeys(words.family for words in DIALECTS.values())
}
# A name in the family, or the beginning of one (with *). Proxies are read in both cases.
FAMILIES = (
    ("launcher", _OF_LAUNCHERS.pop("launcher")),
    ("torch", ("TORCH*", "PYTORCH*")),
    ("GPU", ("CUDA_VISIBLE_DEVICES", "CUDA_*", "NVIDIA_VISIBLE_DEVICES", "HIP_*", "ROCR_*")),
    ("network", ("NCCL_*", "RCCL_*", "GLOO_*", "FI_*", "UCX_*")),
    ("W&B", ("WANDB_*",)),
    ("Hugging Face", ("HF_*", "HUGGINGFACE_*", "TRANSFORMERS_*", "TOKENIZERS_PARALLELISM")),
    *_OF_LAUNCHERS.items(),
    ("Kubernetes", ("KUBERNETES_*",)),
    (
        "proxy",
        (
            *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
            *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        ),
    ),
)
# Said even when they are not set, because that is what matters then.
_EXPECTED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_EXPECTED_GPU = ("CUDA_VISIBLE_DEVICES",)
_WIDTH = 150  # characters of a line of the block


def relevant(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of all families by name, secrets masked."""
    return {name: value for family in _by_family(environ) for name, value in family[1].items()}


def state(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the block as a dict: `variables`, `cuda` and `process_group`.

    The last two are None while torch is not loaded, or has no group.
    """
    return {"variables": relevant(environ), "cuda": cuda(), "process_group": process_group()}


def lines(moment: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the block as lines to print; `moment` says when it was taken."""
    block = [f"Environment {moment}"]
    for family, found in _by_family(environ):
        words = [f"{name}={value}" for name, value in found.items()]
        expected = {"launcher": _EXPECTED, "GPU": _EXPECTED_GPU}.get(family, ())
        words += [f"{name} (not set)" for name in expected if name not in found]
        block += _wrapped(f"  {family}: ", words)
    block.append(f"  CUDA: {_cuda_in_words(cuda())}")
    block.append(f"  process group: {_group_in_words(process_group())}")
    return block


def cuda() -> dict[str, Any] | None:
    """Return what torch says of CUDA, or None while torch is not loaded.

    Counts by NVML where torch can: asking the driver itself would break forked processes
    (torch.cuda.is_available's documentation). Names need the driver: once it is in use only.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda"):  # not there, or half-way through its import
        return None
    try:
        count = torch.cuda.device_count()
        names = (
            [torch.cuda.get_device_name(index) for index in range(count)]
            if torch.cuda.is_initialized()
            else []
        )
        return {
            "available": count > 0,
            "devices": count,
            "names": names,
            "built": torch.version.cuda,
        }
    except Exception as error:  # a driver can fail in any way: the block must not
        return {"available": False, "devices": 0, "names": [], "error": str(error)}


def process_group() -> dict[str, Any] | None:
    """Return backend, rank and size of torch's default process group, or None without one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not getattr(distributed, "is_initialized", lambda: False)():
        return None
    return {
        "backend": distributed.get_backend(),
        "rank": distributed.get_rank(),
        "size": distributed.get_world_size(),
    }


def _by_family(environ: Mapping[str, str]) -> list[tuple[str, dict[str, str]]]:
    found: dict[str, dict[str, str]] = {family: {} for family, _ in FAMILIES}
    for name in sorted(environ):
        family = _family_of(name)
        if family:
            found[family][name] = mask(name, environ[name])
    return [(one, named) for one, named in found.items() if named or one in ("launcher", "GPU")]


@lru_cache(1 << 12)
def _family_of(name: str) -> str:
    """Return the first family that a variable fits, "" for none. A rank asks at each of its steps
    in which a variable changed.
    """
    for family, patterns in FAMILIES:
        for one in patterns:
            if name == one or (one[-1] == "*" and name.startswith(one[:-1])):
                return family
    return ""


def _wrapped(label: str, words: list[str]) -> list[str]:
    rows = [label]
    for word in words:
        if rows[-1].strip() != label.strip() and len(rows[-1]) + len(word) > _WIDTH:
            rows.append(" " * len(label))
        rows[-1] += f"{word} "
    return [row.rstrip() for row in rows]


def _cuda_in_words(found: dict[str, Any] | None) -> str:
    if found is None:
        return "torch is not loaded yet"
    if "error" in found:
        return f"not available: {found['error']}"
    if not found["devices"]:
        return "no device" + ("" if found["built"] else ", and torch is built without CUDA")
    names = f": {', '.join(found['names'])}" if found["names"] else ""
    return f"available, {found['devices']} devices{names}"


def _group_in_words(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none yet"
    return f"{found['backend']}, rank {found['rank']} of {found['size']}"
