"""Where the file of a frame lies, for dumps that shorten it. Pure.

py-spy's text names a file from its topmost package on ("torch/nn/modules/module.py"), and one of
no package by its own name ("threading.py", "train.py"): whether it is a library's must be guessed
from the first part, which is either a module of the standard library or a library's that we know.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

# Any folders would do: they say whose a file is, and are never shown.
_STANDARD, _OTHERS = "/lib/python3/", "/lib/python3/site-packages/"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LIBRARIES = _words("""
    torch torchvision torchaudio torchdata torchmetrics functorch triton torchtitan torchtune
    lightning pytorch_lightning lightning_fabric lightning_utilities transformers accelerate
    deepspeed datasets evaluate peft trl tokenizers safetensors huggingface_hub hf_transfer hf_xet
    diffusers sentence_transformers bitsandbytes flash_attn xformers apex megatron vllm sglang ray
    horovod mpi4py wandb mlflow tensorboard tensorboardX comet_ml neptune clearml aim git gitdb
    filelock portalocker fasteners fsspec s3fs gcsfs aiohttp aiobotocore botocore boto3 requests
    urllib3 httpx httpcore h11 anyio sniffio certifi charset_normalizer idna grpc google pyarrow
    numpy pandas scipy sklearn sympy networkx numba llvmlite joblib PIL cv2 matplotlib tqdm rich
    click typer fire hydra omegaconf absl jsonargparse pydantic yaml psutil sentry_sdk zmq tornado
    IPython ipykernel dill multiprocess cloudpickle einops timm jax flax tensorflow keras onnx
    onnxruntime setuptools pkg_resources six attr xxhash regex packaging dateutil webdataset
""")
# Names that are a library's alone, for stacks in which no folder is left (our own files).
_WITHOUT_FOLDERS = {
    file.rpartition("/")[2]: file
    for file in (
        "torch/distributed/distributed_c10d.py",
        "torch/distributed/c10d_logger.py",
        "torch/utils/cpp_extension.py",
        "torch/utils/file_baton.py",
        "wandb/sdk/wandb_init.py",
        "wandb/sdk/wandb_login.py",
        "wandb/sdk/wandb_run.py",
        "huggingface_hub/file_download.py",
        "huggingface_hub/hf_api.py",
    )
}
_NATIVE = re.compile(r"\.(?:so(?:\.[\w.]*)?|c|cc|cpp|cxx|h|hh|hpp|inl|S|s|cu|cuh|rs|go|pyx|pxd)$")


@lru_cache(maxsize=1 << 14)
def whole(file: str) -> str:
    """Return the path of a shortened file so that it can be told whose it is."""
    if file.startswith(("/", "<")) or not file:
        return file
    first = file.partition("/")[0].removesuffix(".py")
    if "/" not in file and not file.endswith(".py"):
        return file  # a console script: "torchrun"
    if first in sys.stdlib_module_names:
        return _STANDARD + file
    file = _WITHOUT_FOLDERS.get(file, file)
    return _OTHERS + file if file.partition("/")[0] in _LIBRARIES and "/" in file else file


def is_native(file: str, has_line: bool) -> bool:
    """Return whether a frame in `file` is of C, C++ or the like: it has no line without debug
    information, and the source of another language with it.
    """
    if file.startswith("<"):
        return False
    return not has_line or bool(_NATIVE.search(file))
