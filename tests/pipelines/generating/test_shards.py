"""How many shards have been read."""

from __future__ import annotations

from hangbisect.pipelines.generation_plan import CheckpointFiles, LoadingProgress, forecast_reading
from hypothesis import given
from hypothesis import strategies as st

WEIGHTS = st.dictionaries(
    st.text("abc.", min_size=1, max_size=8), st.sampled_from("1234"), min_size=1, max_size=40
)


def checkpoint(weights: dict[str, str]) -> CheckpointFiles:
    return CheckpointFiles(dict.fromkeys(sorted(set(weights.values())), 1 << 20), weights)


@given(WEIGHTS, st.randoms())
def test_a_shard_is_read_when_its_last_weight_is(weights: dict[str, str], order: object) -> None:
    names = sorted(weights)
    order.shuffle(names)  # type: ignore[attr-defined]  # a random.Random
    progress = LoadingProgress(checkpoint(weights), len(names))
    for at, name in enumerate(names, 1):
        complete = progress.read(name)
        left = {weights[other] for other in names[at:]}
        assert progress.shards == len(progress.checkpoint.files) - len(left)
        assert complete == (weights[name] not in left)


@given(WEIGHTS)
def test_not_all_shards_are_read_before_the_last_weight(weights: dict[str, str]) -> None:
    progress = LoadingProgress(checkpoint(weights), len(weights) + 1)
    for name in weights:
        progress.read(name)
        assert progress.shards < len(progress.checkpoint.files)
    progress.read("another")
    assert progress.shards == len(progress.checkpoint.files)


@given(st.integers(1, 60), st.integers(1, 300))
def test_of_weights_with_other_names_the_share_counts(files: int, total: int) -> None:
    names = [str(number) for number in range(files)]
    progress = LoadingProgress(
        CheckpointFiles(dict.fromkeys(names, 1), {n: n for n in names}), total
    )
    seen = []
    for _ in range(total):
        progress.read("joined")
        seen.append(progress.shards)
    assert seen == sorted(seen)
    assert seen[-1] == files
    assert all(one < files for one in seen[:-1])


def test_the_line_says_how_far_it_is_how_fast_and_how_long_the_rest_takes() -> None:
    weights = {str(n): str(n % 2) for n in range(4)}
    progress = LoadingProgress(CheckpointFiles({"0": 1 << 30, "1": 1 << 30}, weights), 4)
    progress.read("0")
    progress.read("2")
    words = progress.in_words(10.0)
    assert words == ("1 of 2 shards read, 2 of 4 weights, 10.0 s at 102 MiB/s, about 10.0 s left")


def test_what_to_expect_is_bytes_over_the_rate_that_was_measured() -> None:
    two = CheckpointFiles({"0": 1 << 30, "1": 1 << 30}, {})
    assert (
        forecast_reading(two, 1 << 28) == "2 GiB in 2 shards; about 8.0 s at 256 MiB/s, as measured"
    )
    assert "not known" in forecast_reading(two, None)
