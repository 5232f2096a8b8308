"""The toggles of text generation: how much is generated, from what, and by which weights."""

from __future__ import annotations

from .toggle import ANY, Toggle, Variant

_PIPELINES = ("generation",)
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
        pipelines=_PIPELINES,
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
        pipelines=_PIPELINES,
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
        pipelines=_PIPELINES,
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
        pipelines=(*_PIPELINES, "finetuning"),
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
