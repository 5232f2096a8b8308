"""The dataset, which workers import anew, and the batches."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hangbisect.pipelines.shared_steps import (
    EPOCH,
    IGNORED,
    Collate,
    CollatePacked,
    Texts,
    split_lines,
)
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
    assert split_lines("  one\n\n \t\ntwo  \n") == ["one", "two"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    from hangbisect.pipelines.model_steps import END_OF_TEXT, TOKENIZER

    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=TOKENIZER, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
    )


@pytest.fixture(scope="module")
def lines() -> list[str]:
    from hangbisect.pipelines.model_steps import TEXT

    with open(TEXT, encoding="utf-8") as file:
        return split_lines(file.read())


def test_the_shipped_tokenizer_makes_batches_also_in_another_process(
    tokenizer: Any, lines: list[str]
) -> None:
    collate = pickle.loads(pickle.dumps(Collate(tokenizer, 16)))
    batch = collate([lines[0], "short"])
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 16)
    assert (batch["labels"][1] == IGNORED).sum() == (batch["attention_mask"][1] == 0).sum() > 0
    assert tokenizer.decode(batch["input_ids"][0]) in lines[0]


def test_packed_rows_are_full_and_follow_one_another(tokenizer: Any, lines: list[str]) -> None:
    batch = pickle.loads(pickle.dumps(CollatePacked(tokenizer, 16)))(lines[:4])
    rows = batch["input_ids"]
    assert len(rows) > 4  # four texts, each longer than a row
    assert batch["attention_mask"].min() == 1
    assert (batch["labels"] == rows).all()
    assert tokenizer.decode(rows.flatten()[:20]).startswith(lines[0][:20])


def test_too_few_packed_tokens_are_repeated_to_one_row(tokenizer: Any) -> None:
    batch = CollatePacked(tokenizer, 64)(["a"])
    assert batch["input_ids"].shape == batch["labels"].shape == (1, 64)
