"""What ranks told of the toggles whose calls they came to."""

from __future__ import annotations

from hangbisect.toggles.command_toggles import (
    Known,
    ReachedToggles,
    find_usable_toggles,
    merge_reached,
    parse_reached,
)
from hangbisect.toggles.table import TOGGLES
from hangbisect.toggles.toggle import AS_SET, Toggle

THEIRS = ("torchrun", "--nproc_per_node=2", "train.py")
NEVER = "the script never reaches it"


def chosen(
    *told: str, inside: bool = True, **environ: str
) -> tuple[dict[str, Toggle], dict[str, str]]:
    left, unused = find_usable_toggles(
        THEIRS, environ, TOGGLES, Known(reached=parse_reached(told, inside))
    )
    return {toggle.name: toggle for toggle in left}, unused


def test_a_toggle_that_the_script_never_reaches_is_named_so() -> None:
    left, unused = chosen("num_workers=4")
    assert left["num_workers"].values == ("4", "0")
    assert {unused[name] for name in ("strategy", "wandb", "hub", "compile")} == {NEVER}
    assert "omp_num_threads" not in unused or unused["omp_num_threads"] != NEVER  # nobody tells


def test_what_the_script_says_itself_is_what_it_is_run_with() -> None:
    left, unused = chosen("num_workers=0", "num_workers=8", "strategy=ddp", "attention=flash")
    assert left["num_workers"].values == ("8", "0")
    assert unused["strategy"] == "it is ddp already"
    assert left["attention"].values == ("flash", "eager")
    left, unused = chosen("num_workers=0", "wandb=rank0", "wandb=every-rank", "worker_start")
    assert unused["num_workers"] == "it is 0 already"
    assert left["wandb"].values == ("every-rank", "rank0", "offline", "off")
    assert left["worker_start"].values == (AS_SET, "forkserver", "spawn")


def test_a_variable_counts_before_what_the_script_says() -> None:
    left, _ = chosen("wandb=rank0", WANDB_MODE="offline")
    assert left["wandb"].values == ("offline", "off")


def test_only_where_the_script_overrules_a_variable_the_code_is_changed_as_well() -> None:
    left, _ = chosen("wandb=rank0")
    assert left["wandb"].change_in_code("offline") == ""
    left, _ = chosen("wandb=rank0", "wandb:in-code")
    assert left["wandb"].change_in_code("offline") == "wandb.init(mode='offline')"


def test_where_no_rank_spoke_only_what_needs_none_is_left() -> None:
    left, unused = chosen(inside=False)
    assert unused["num_workers"].startswith("no rank told of itself")
    assert left["wandb"].values == (AS_SET, "offline", "off")
    assert left["hub"].values == (AS_SET, "offline")


def test_two_starts_tell_more_than_one() -> None:
    one, other = (
        parse_reached(["wandb=rank0"]),
        parse_reached(["wandb=every-rank", "hub", "wandb:in-code"]),
    )
    together = merge_reached(one, other)
    assert together == ReachedToggles(
        {"wandb": ("rank0", "every-rank"), "hub": ()}, frozenset({"wandb"}), True
    )
    assert merge_reached(None, one) is one
    assert merge_reached(one, None) is one
