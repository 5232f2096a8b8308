"""Toggles of the pipelines that generate, fine-tune and replay."""

from __future__ import annotations

from .toggle import ANY, AS_SET, Toggle, Variant

_GENERATION = ("generation",)
_GENERATE = "generate()"

GENERATION = (
    Toggle(
        name="max_new_tokens",
        component="generation",
        flag="--max-new-tokens",
        values=("512", "256", "128"),
        default="512",
        kind="remedy",
        read="run",
        read_how=_GENERATE,
        cost="answers end sooner, if need be in the middle of a sentence",
        help="tokens that a step generates at most; more than 512 are cut to 512, and that is said",
        accepts="count",
        pipelines=_GENERATION,
        in_code=((ANY, "generate(..., max_new_tokens=VALUE)"),),
        told=True,
    ),
    Toggle(
        name="max_length",
        component="generation",
        flag="--max-length",
        values=("2048", "1024", "512"),
        default="2048",
        kind="remedy",
        read="run",
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
        kind="remedy",
        read="run",
        read_how=_GENERATE,
        cost="off: the same answer each time",
        help="whether tokens are drawn, or the likeliest taken; left to the model's generation "
        "config by default",
        pipelines=_GENERATION,
        in_code=(
            ("on", "generate(..., do_sample=True)"),
            ("off", "generate(..., do_sample=False)"),
        ),
        told=True,
    ),
    Toggle(
        name="quantization",
        component="model",
        flag="--quantization",
        values=("on", "off"),
        default="off",
        kind="remedy",
        read="run",
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
        kind="remedy",
        read="run",
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
        kind="remedy",
        read="run",
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
        kind="remedy",
        read="run",
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
        kind="remedy",
        read="run",
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
        kind="remedy",
        read="run",
        read_how="deepspeed.initialize",
        cost="optimizer states, gradients and weights are whole on each rank",
        help="DeepSpeed's ZeRO stage around the module; off: no DeepSpeed",
        pipelines=("replay",),
    ),
)
