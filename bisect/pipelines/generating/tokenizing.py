"""Step 3: the tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model_steps import END_OF_TEXT, TOKENIZER, asking_the_hub

if TYPE_CHECKING:
    from ...rank.context import Context


def tokenizer(context: Context) -> Any:
    """Return the tokenizer of --tokenizer, else the model's; one that ships for the small model."""
    args = context.args
    name = args.tokenizer or args.model
    context.imports("torch")
    transformers = context.imports("transformers")
    with asking_the_hub("tokenizer", name, context):
        if name:
            only = ", local_files_only=True" * args.local_files_only
            context.about_to("transformers.AutoTokenizer.from_pretrained", f" with {name}{only}")
            loaded = transformers.AutoTokenizer.from_pretrained(
                name, local_files_only=args.local_files_only
            )
        else:
            context.about_to("transformers.PreTrainedTokenizerFast", " with a file that ships")
            loaded = transformers.PreTrainedTokenizerFast(
                tokenizer_file=TOKENIZER, eos_token=END_OF_TEXT
            )
    loaded.padding_side = "left"  # what follows a prompt must follow its last word
    context.say(f"Tokenizer {type(loaded).__name__} with {len(loaded)} tokens")
    return loaded
