"""The size of the KV cache: as arithmetic, and next to what a real model's cache takes."""

from __future__ import annotations

from typing import Any

import pytest
from hangbisect.pipelines.generating.forecast import CacheLayer, CacheLayout, fit_layer
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.integers(1, 512)
LAYERS = st.builds(
    CacheLayer,
    per_token=st.integers(0, 4096),
    constant=st.integers(0, 4096),
    window=st.none() | st.integers(2, 300),
)
LAYOUTS = st.builds(
    CacheLayout, st.lists(LAYERS, min_size=1, max_size=8).map(tuple), st.sampled_from([1, 2, 4])
)


@given(LAYOUTS, COUNTS, COUNTS)
def test_twice_the_batch_takes_twice_as_much(layout: CacheLayout, batch: int, tokens: int) -> None:
    assert layout.bytes(2 * batch, tokens) == 2 * layout.bytes(batch, tokens)


@given(LAYOUTS, COUNTS, COUNTS)
def test_more_tokens_never_take_less(layout: CacheLayout, tokens: int, more: int) -> None:
    assert layout.bytes(1, tokens + more) >= layout.bytes(1, tokens)


@given(st.integers(0, 4096), st.integers(2, 300), COUNTS)
def test_beyond_its_window_a_layer_takes_no_more(per_token: int, window: int, tokens: int) -> None:
    layout = CacheLayout((CacheLayer(per_token, window=window),), 2)
    assert layout.bytes(1, window + tokens) == layout.bytes(1, window - 1)


@given(LAYERS.filter(lambda layer: layer.window is None), COUNTS, COUNTS)
def test_two_lengths_tell_how_a_layer_grows(layer: CacheLayer, short: int, more: int) -> None:
    few = {n: int(layer.constant + layer.per_token * n) for n in (short, short + more)}
    found = CacheLayout((fit_layer(few, None),), 1)
    assert found.bytes(3, 100) == CacheLayout((layer,), 1).bytes(3, 100)


def test_a_model_of_seventy_billion_takes_what_its_heads_say() -> None:
    # Llama 3.3 70B: 80 layers, 8 heads of keys and values of 128 numbers each, bf16.
    layout = CacheLayout((CacheLayer(2 * 8 * 128),) * 80, 2)
    assert layout.bytes(1, 1) == 327_680
    assert layout.bytes(1, 2048 + 512) == 2560 * 327_680


# ---- next to a real cache ------------------------------------------------------------------------

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**SIZES, "num_key_value_heads": 2},
    "gpt2": {"vocab_size": 64, "n_embd": 64, "n_layer": 3, "n_head": 2, "n_positions": 256},
    "mistral": {**SIZES, "num_key_value_heads": 1, "sliding_window": 8},
    "gemma3_text": {
        **SIZES,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "deepseek_v2": {
        **SIZES,
        "num_key_value_heads": 4,
        "kv_lora_rank": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 4,
    },
}


@pytest.mark.xdist_group("caches")  # one worker imports the models
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_what_the_cache_of_a_real_model_takes(kind: str, dtype: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from hangbisect.pipelines.generating.forecast import find_cache_layout

    config = transformers.AutoConfig.for_model(kind, **CONFIGS[kind])
    layout = find_cache_layout(config, getattr(torch, dtype), transformers, torch)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    batch, prompt, new = 2, 11, 13
    output = model.eval().generate(
        torch.ones((batch, prompt), dtype=torch.long),
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        return_dict_in_generate=True,
    )
    kept = output.past_key_values
    taken = sum(
        one.numel() * one.element_size()
        for layer in kept.layers
        for one in vars(layer).values()
        if isinstance(one, torch.Tensor) and one.dim() > 1
    )
    # The last token that was generated has not been through the model.
    assert layout.bytes(batch, prompt + new - 1) == taken
