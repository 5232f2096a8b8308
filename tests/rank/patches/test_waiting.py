"""Words that are told before anybody hears them."""

from __future__ import annotations

from hangbisect.rank.patches import WordQueue


def test_words_are_kept_until_somebody_hears_them_and_told_once() -> None:
    heard: list[str] = []
    told = WordQueue()
    told("num_workers=2")
    told.through(heard.append)
    told("wandb")
    assert heard == ["num_workers=2", "wandb"]


def test_a_child_that_is_no_rank_tells_nobody() -> None:
    heard: list[str] = []
    told = WordQueue()
    told.through(heard.append)
    told.through(None)
    told("hub")
    assert heard == []
    told.through(heard.append)
    assert heard == ["hub"]
