"""Compilation that fails: what runs as it is, and not through torch.compile."""

from __future__ import annotations

from .known import KnownCause, also, need
from .signs import ended_with

# ---- signs ---------------------------------------------------------------------------------------

_fake_for_a_number = ended_with(
    r"value of type '(?:int|float|bool|SymInt)' for argument '(?P<argument>\w{1,60})' but instead "
    r"found type 'FakeTensor'"
    r"|Unable to cast Python instance of type <class '[\w.]{0,80}FakeTensor'> to C\+\+ type",
    "It ended in a compilation: a FakeTensor stands where a function of C++ takes a number",
)
_packed_attention = ended_with(
    r"flash_attn\w{0,40}varlen\w{0,40}|max_seqlen_[qk]",
    "The function is flash attention for rows of different lengths, as packed samples have them",
)

# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="fake-tensor",
        title="a compiled forward gives a function a tensor in the place of a number",
        signs=(need(_fake_for_a_number, 0.9), also(_packed_attention, 0.5)),
        why="While torch.compile traces a forward, tensors have no values. A function of C++ that "
        "takes a number, and gets a tensor with one element, reads its value when nothing is "
        "compiled; there it cannot. Flash attention for packed samples is called so, with the "
        "length of the longest sample.",
        avoid=(
            "samples that are not packed: flash attention for rows of one length is called then",
            "attn_implementation='sdpa' in place of flash attention",
            "`.item()` on that number before the call, where the code is yours; or a newer release "
            "of what calls it",
        ),
        toggles=(("packing", "off"), ("attention", "sdpa"), ("compile", "off")),
        references=(
            "Dao-AILab/flash-attention#1351",
            "huggingface/transformers#35588",
            "huggingface/transformers#44962",
        ),
        outcomes=("crash",),
    ),
)
