"""What may be said of a generation on the command line."""

from __future__ import annotations

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.place import find_place
from hangbisect.pipelines.shared_steps import device_size
from hangbisect.rank.arguments import parse_walk_arguments


@pytest.mark.parametrize(
    ("text", "pair"), [("0=20GB", (0, "20GB")), ("cpu=1.5GiB", ("cpu", "1.5GiB"))]
)
def test_memory_is_a_device_and_a_size(text: str, pair: tuple[int | str, str]) -> None:
    assert device_size("--max-memory")(text) == pair


@pytest.mark.parametrize("text", ["20GB", "gpu=20GB", "0=20", "0=", "=2GB", "disk=1GB"])
def test_other_memory_is_named_with_what_is_right(text: str) -> None:
    with pytest.raises(UsageError, match=r"--max-memory cannot be .*0=20GB.*cpu=50GB"):
        device_size("--max-memory")(text)


def test_a_step_of_ones_own_is_no_checkpoint_and_taken_all_the_same() -> None:
    words = ["--pipeline", "generation", "--use", "step=my_loop:step"]
    args, walked = parse_walk_arguments(words, find_place({}), {})
    assert args.use == {"step": "my_loop:step"}
    assert "step" not in {row.name for row in walked.table}


def test_a_step_of_ones_own_is_of_this_pipeline_alone() -> None:
    with pytest.raises(UsageError, match="--use names 'step'"):
        parse_walk_arguments(["--use", "step=my_loop:step"], find_place({}), {})
