"""Public entry points of libraries that we know: the one place to add another.

A stack shows private names (`_WandbInit.init`), and often several public ones. Each row gives the
end of a file's path (with or without ".py"), the function as the last part of its qualified name,
the dotted name that users write ("": only the component), the component it belongs to (None: the
step's own), and whether it is `telling`: a telling call says more than whatever encloses it, so
the innermost telling one is the answer; the others only give the outermost library function its
public name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ..facts import Frame
from .frames import short


@dataclass(frozen=True)
class Entry:
    file: str  # a regular expression, matched at the end of the file's path
    function: str  # a regular expression, matched whole against the unqualified name
    call: str  # {name}: the function's own, {class}: the one it is a method of
    component: str | None = None
    telling: bool = False
    collective: bool = False
    container: bool = False  # runs code of the job, and that is inside more often than not

    def matches(self, frame: Frame) -> bool:
        return bool(
            re.fullmatch(self.function, short(frame.name))
            and re.search(rf"(?:^|[/ ]){self.file}>?$", frame.file)
        )

    def named(self, frame: Frame) -> str:
        owner = frame.name.rpartition(".")[0].rpartition(".")[2]
        owner = _PUBLIC.get(owner, owner)
        return self.call.format(name=short(frame.name), **{"class": owner or "object"})


# Classes that people call by the name of one that derives from them.
_PUBLIC = {"_BaseAutoModelClass": "AutoModel"}
_LIGHTNING = r"(?:pytorch_lightning|lightning/pytorch)"
_FABRIC = r"(?:lightning_fabric|lightning/fabric)"
_C10D = r"torch/distributed/distributed_c10d\.py"
_COLLECTIVE = (
    r"(?:monitored_)?barrier|(?:all_)?reduce\w*|(?:all_)?gather\w*|all_to_all\w*|scatter\w*"
    r"|broadcast\w*|reduce_scatter\w*|i?send\w*|i?recv\w*|batch_isend_irecv"
)

ENTRIES = (
    # wandb
    Entry(r"wandb/sdk/wandb_init\.py", "init", "wandb.init", "wandb", telling=True),
    Entry(r"wandb/sdk/wandb_login\.py", "_?login", "wandb.login", "wandb", telling=True),
    Entry(r"wandb/sdk/wandb_run\.py", "finish", "wandb.finish", "wandb", telling=True),
    Entry(r"wandb/sdk/wandb_run\.py", "_?log", "wandb.log", "wandb", telling=True),
    Entry(r"wandb/sdk/wandb_setup\.py", "_?setup", "wandb.setup", "wandb", telling=False),
    Entry(r"wandb/sdk/\S+\.py", r"teardown\w*", "wandb.teardown", "wandb", telling=True),
    Entry(
        rf"{_LIGHTNING}/loggers/wandb\.py",
        "__init__|experiment",
        f"pytorch_lightning.loggers.{'{class}'}",
        "wandb",
    ),
    # the hub
    Entry(
        r"transformers/models/auto/(?:tokenization_auto|auto_factory|configuration_auto"
        r"|processing_auto)\.py",
        "from_pretrained",
        "transformers.{class}.from_pretrained",
        telling=True,
    ),
    Entry(
        r"transformers/(?:modeling_utils|tokenization_utils\w*|configuration_utils"
        r"|generation/configuration_utils)\.py",
        "from_pretrained",
        "transformers.{class}.from_pretrained",
    ),
    Entry(
        r"transformers/generation/utils\.py",
        "generate",
        "transformers.{class}.generate",
        "generation",
    ),
    Entry(r"huggingface_hub/file_download\.py", "hf_hub_download", "huggingface_hub.{name}", "hub"),
    Entry(r"huggingface_hub/_snapshot_download\.py", r"\w+", "huggingface_hub.{name}", "hub"),
    Entry(r"huggingface_hub/hf_api\.py", r"\w+", "huggingface_hub.HfApi.{name}", "hub"),
    Entry(r"datasets/load\.py", "load_dataset", "datasets.load_dataset", "data"),
    # torch.distributed
    Entry(_C10D, "init_process_group", "torch.distributed.{name}", "strategy", telling=True),
    Entry(_C10D, "new_group|split_group", "torch.distributed.{name}", "strategy", telling=True),
    Entry(_C10D, "destroy_process_group", "torch.distributed.{name}", "strategy", telling=True),
    Entry(_C10D, _COLLECTIVE, "torch.distributed.{name}", "strategy", True, collective=True),
    Entry(
        r"torch/nn/parallel/distributed\.py",
        "__init__",
        "torch.nn.parallel.DistributedDataParallel",
        "strategy",
        telling=True,
    ),
    Entry(
        r"torch/distributed/fsdp/fully_sharded_data_parallel\.py",
        "__init__",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "strategy",
        telling=True,
    ),
    Entry(
        rf"{_FABRIC}/utilities/distributed\.py",
        "__exit__",
        "torch.distributed.barrier",
        "strategy",
        telling=True,
        collective=True,
    ),
    # Lightning
    Entry(rf"{_LIGHTNING}/trainer/trainer\.py", "__init__", "pytorch_lightning.Trainer", "trainer"),
    Entry(
        rf"{_LIGHTNING}/trainer/trainer\.py",
        "fit|validate|test|predict",
        "pytorch_lightning.Trainer.{name}",
        container=True,
    ),
    Entry(rf"{_LIGHTNING}/trainer/call\.py", r"_call_callback\w*", "", "callbacks"),
    Entry(rf"{_LIGHTNING}/trainer/connectors/data_connector\.py", "prepare_data", "", "data"),
    Entry(rf"{_LIGHTNING}/trainer/call\.py", "_call_lightning_datamodule_hook", "", "data"),
    # torch
    Entry(
        r"torch/utils/data/dataloader\.py",
        "__next__|__iter__",
        "torch.utils.data.DataLoader.{name}",
        "data",
        telling=True,
    ),
    Entry(
        r"torch/utils/cpp_extension\.py",
        "load|load_inline",
        "torch.utils.cpp_extension.{name}",
        telling=True,
    ),
    Entry(
        r"torch/cuda/__init__\.py",
        r"_lazy_init|init|is_available|device_count|set_device|current_device|synchronize|get_device_\w+",
        "torch.cuda.{name}",
        "accelerator",
    ),
    # the standard library and small ones
    Entry(r"subprocess\.py", "run|call|check_call|check_output", "subprocess.{name}"),
    Entry(r"subprocess\.py", "wait|communicate|__init__", "subprocess.Popen.{name}"),
    Entry(r"os(?:\.py)?", "makedirs|walk|fwalk|removedirs|renames", "os.{name}"),
    Entry(r"shutil\.py", r"\w+", "shutil.{name}"),
    Entry(r"threading\.py", "join", "threading.Thread.join"),
    Entry(r"threading\.py", "wait", "threading.{class}.wait"),
    Entry(r"threading\.py", "_shutdown", "threading._shutdown"),
    Entry(r"queue\.py", "get|put|join", "queue.Queue.{name}"),
    Entry(r"socket\.py", "readinto", "socket.socket.recv"),
    Entry(r"multiprocessing/process\.py", "join|start", "multiprocessing.Process.{name}"),
    Entry(r"multiprocessing/pool\.py", "map|apply|get|join", "multiprocessing.Pool.{name}"),
    Entry(r"multiprocessing/queues\.py", "get|put", "multiprocessing.Queue.{name}"),
    Entry(r"concurrent/futures/_base\.py", "result", "concurrent.futures.Future.result"),
    Entry(r"asyncio/runners\.py", "run", "asyncio.run"),
    Entry(r"urllib/request\.py", "urlopen", "urllib.request.urlopen"),
    Entry(r"requests/api\.py", r"\w+", "requests.{name}"),
    Entry(r"httpx2?/_api\.py", r"\w+", "httpx.{name}"),
    Entry(r"filelock/_api\.py", "acquire|__enter__", "filelock.FileLock.acquire"),
)


def entries(frame: Frame) -> tuple[Entry, ...]:
    """Return the rows that `frame` matches."""
    return _rows(frame.file, frame.name)


@lru_cache(maxsize=1 << 14)  # ranks share their frames: a thousand of them have few different ones
def _rows(file: str, name: str) -> tuple[Entry, ...]:
    frame = Frame(name, file, 0)
    return tuple(entry for entry in ENTRIES if entry.matches(frame))
