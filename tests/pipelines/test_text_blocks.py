"""The dataset, which workers import anew, and the batches."""

from __future__ import annotations

import pickle

import pytest
from hangbisect.pipelines.text_blocks import EPOCH, IGNORED, Collate, Texts, split
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.text(min_size=1), min_size=1, max_size=50), st.integers(0, 10**6))
def test_the_text_begins_again_after_its_end(texts: list[str], index: int) -> None:
    assert Texts(texts)[index] == texts[index % len(texts)]


def test_an_epoch_is_never_short_and_never_leaves_a_text_out() -> None:
    assert len(Texts(["a"])) == EPOCH
    assert len(Texts(["a"] * (EPOCH + 1))) == EPOCH + 1


def test_no_text_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="no text"):
        Texts([])


def test_empty_lines_are_no_texts() -> None:
    assert split("  one\n\n \t\ntwo  \n") == ["one", "two"]


def test_the_shipped_tokenizer_makes_batches_also_in_another_process() -> None:
    transformers = pytest.importorskip("transformers")
    from hangbisect.pipelines.model_steps import END_OF_TEXT, TEXT, TOKENIZER

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=TOKENIZER, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
    )
    collate = pickle.loads(pickle.dumps(Collate(tokenizer, 16)))
    with open(TEXT, encoding="utf-8") as file:
        lines = split(file.read())
    batch = collate([lines[0], "short"])
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 16)
    assert (batch["labels"][1] == IGNORED).sum() == (batch["attention_mask"][1] == 0).sum() > 0
    assert tokenizer.decode(batch["input_ids"][0]) in lines[0]
