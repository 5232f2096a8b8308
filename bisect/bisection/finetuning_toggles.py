"""The toggles of a fine-tuning: what its memory and its numbers depend on."""

from __future__ import annotations

from .toggle import AS_SET, Toggle, Variant

_PIPELINES = ("finetuning",)

FINETUNING = (
    Toggle(
        name="precision",
        component="model",
        flag="--precision",
        values=("fp16", "fp16-mixed", "bf16", "bf16-mixed", "fp32"),
        default="fp32",
        kind="remedy",
        read="run",
        read_how="from_pretrained, and TrainingArguments",
        cost="fp32: weights, gradients and activations take twice the memory, and more time",
        help="what weights are held and computed in: float16 without a scaler, mixed with one; "
        "bfloat16, mixed; float32",
        pipelines=(*_PIPELINES, "replay"),
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
        kind="remedy",
        read="run",
        read_how="peft.LoraConfig",
        cost="the adapters learn less",
        help="rank of LoRA's adapters; 0: none, all weights are trained",
        accepts="count",
        pipelines=_PIPELINES,
    ),
    Toggle(
        name="sequence_length",
        component="data",
        flag="--sequence-length",
        values=("2048", "1024", "512", "128", "32"),
        default="128",
        kind="remedy",
        read="run",
        read_how="the step that makes rows of tokens",
        cost="the model sees less at once: it is another training",
        help="tokens of each example",
        accepts="count",
        pipelines=_PIPELINES,
    ),
    Toggle(
        name="micro_batch",
        component="data",
        flag="--micro-batch",
        values=("8", "4", "2", "1"),
        default="8",
        kind="remedy",
        read="run",
        read_how="TrainingArguments(per_device_train_batch_size)",
        cost="steps are slower: as many examples each, fewer at once",
        help="examples at once; gradients are added up to --batch-size before each step",
        accepts="count",
        pipelines=_PIPELINES,
    ),
)
