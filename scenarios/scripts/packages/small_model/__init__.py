"""A small model for vLLM, and a plugin of vLLM's as pip would install it."""

import os
import shutil
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def write_model(folder: Path) -> None:
    """Write a Llama of two layers, and a tokenizer of 202 words."""
    vocabulary = {f"t{number}": number for number in range(200)} | {"<unk>": 200, "</s>": 201}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="</s>")
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def install_plugin(site: Path, script: str) -> None:
    """Install a script as a plugin: vLLM calls its `register` in each of its processes."""
    told = site / "own_plugin-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: own_plugin\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[vllm.general_plugins]\nown = own_plugin:register\n")
    shutil.copy(script, site / "own_plugin.py")
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def serve(script: str, *, seconds: float | None = None) -> None:
    """Become `vllm serve` with what the script was called with, and the script as its plugin; for
    so many seconds.
    """
    here = Path("place").absolute()
    write_model(here / "model")
    install_plugin(here / "site", script)
    vllm = str(Path(sys.executable).with_name("vllm"))
    words = [vllm, "serve", str(here / "model"), *sys.argv[1:]]
    if seconds is not None:
        words = ["timeout", "-s", "INT", str(seconds), *words]
    os.execvp(words[0], words)
