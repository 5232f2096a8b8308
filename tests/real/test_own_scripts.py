"""Some of the scripts that users might have, for real: benchmarks/own_scripts.py has them all."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

import own_scripts
import pytest
import script_answers
import script_shelf
import script_worlds

# Ranks that a program spawns, or a shell with a number each, and a child of a rank: what the other
# tests do not have.
WATCHED = (
    "spawn_rank_asks_a_service",
    "own_condition_of_threads",
    "own_shell_loop_starts_torch_with_numbers",
)
ATTACHED = (
    "accelerate_barrier_within_the_lock",  # its name is a relative one
    "ddp_full_pipe_of_a_child",
    "own_manager_queue",
    "own_object_store",
)
SHELF = script_shelf.all_scripts()


def options(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(stall=6.0, keep=tmp_path / "kept")


def check(tried: own_scripts.Tried, script: script_shelf.Script, kept: Path) -> None:
    answer = script_answers.compare(script, tried.verdict, tried.seconds, tried.mode == "run")
    said = kept / "kept" / script.name / "output.txt"
    assert answer.good, f"{script_answers.row(answer)}\n{said.read_text()}"


@pytest.mark.parametrize("name", WATCHED)
def test_run_names_rank_step_and_call(name: str, tmp_path: Path) -> None:
    (script,) = script_shelf.chosen([name])
    check(own_scripts.under_run(script, options(tmp_path)), script, tmp_path)


@pytest.mark.parametrize("name", ATTACHED)
def test_attach_names_rank_and_call(name: str, tmp_path: Path) -> None:
    (script,) = script_shelf.chosen([name])
    check(own_scripts.by_attach(script, options(tmp_path)), script, tmp_path)


def test_every_script_stands_alone_and_says_what_is_right() -> None:
    for script in SHELF:
        assert not re.search(r"hangbisect|\bbisect\b", script.source), script.name
        assert script.title.endswith((".", ")")), script.title
        assert (script.world or "nothing") in script_worlds.WORLDS, script.world
        assert any("train" in word for word in (*script.command, *script.files.values()))
        assert not script.truth.waiting & frozenset().union(*script.truth.culprits), script.name
        compile(script.source, script.name, "exec")


def test_the_shelf_has_hangs_of_each_flavour_and_healthy_ones() -> None:
    hangs = [script for script in SHELF if script.truth.outcome == "hang"]
    assert {script.flavour for script in hangs} == {*script_shelf.FLAVOURS.values()} - {
        "plain Python"
    }
    assert len(hangs) >= 40
    assert {"ddp", "lightning", "trainer", "accelerate"} <= {
        script.name.partition("_")[0] for script in SHELF if "quick_start" in script.name
    }


@pytest.mark.parametrize("mode", ["run", "attach"])
def test_actors_of_ray_are_ranks_below_their_driver(mode: str, tmp_path: Path) -> None:
    """Ray takes 240 MB and half a minute: it is no package that the tests install."""
    (script,) = script_shelf.chosen(["ray_actor_waits_for_a_lock"])
    if script.missing:
        pytest.skip(f"{script.missing} is not installed here")
    ask = own_scripts.under_run if mode == "run" else own_scripts.by_attach
    check(ask(script, options(tmp_path)), script, tmp_path)


def test_a_spawned_rank_that_died_before_it_said_hello_is_no_rank_that_never_started(
    tmp_path: Path,
) -> None:
    (script,) = script_shelf.chosen(["spawn_rank_killed_as_it_starts"])
    check(own_scripts.under_run(script, options(tmp_path)), script, tmp_path)


# A lock below an engine and its ready pipes; one that died while its launcher reads another's pipe.
SERVERS = [("attach", "server_vllm_weights_lock_held"), ("run", "server_sglang_scheduler_killed")]


@pytest.mark.parametrize(("mode", "name"), SERVERS)
def test_a_server_that_does_not_start_leads_to_the_worker_that_stands_still(
    mode: str, name: str, tmp_path: Path
) -> None:
    (script,) = script_shelf.chosen([name])
    ask = own_scripts.under_run if mode == "run" else own_scripts.by_attach
    check(ask(script, options(tmp_path)), script, tmp_path)


def test_a_server_that_is_ready_is_no_hang(tmp_path: Path) -> None:
    (script,) = script_shelf.chosen(["server_sglang_idle"])
    quick = replace(script, amount=20.0)
    check(own_scripts.under_run(quick, options(tmp_path)), quick, tmp_path)
