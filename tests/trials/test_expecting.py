"""What a person is told before anything is started."""

from __future__ import annotations

from hangbisect.base.verdict_facts import Trial
from hangbisect.search.flaky_search import estimate_flaky_starts
from hangbisect.search.trial_results import estimate_starts
from hangbisect.trials.isolation_answer import format_expectation, format_flaky_expectation
from hangbisect.trials.isolation_plan import choose_toggles

from .simulated_job import plan

COMMAND = ("torchrun", "--nproc_per_node=8", "train.py", "--output_dir", "/data/out")


def test_starts_minutes_gpus_and_what_is_written_are_told() -> None:
    remedies = choose_toggles(plan(command=COMMAND, ours=False)).remedies
    told = "\n".join(format_expectation(COMMAND, {}, remedies, 3, folder="iso", limit=60.0, gpus=8))
    size = estimate_starts(remedies, 3)
    assert f"about {size.about} times" in told
    assert f"{size.about} to {size.most} min" in told
    assert "8 ranks each, up to 8 GPUs" in told
    assert "none longer than 60 s" in told
    assert "below iso" in told
    assert "--output-dir /data/out" in told


def test_for_a_hang_that_comes_and_goes_its_own_search_is_told() -> None:
    remedies = choose_toggles(plan(command=COMMAND, ours=False)).remedies
    options = {"folder": "iso", "limit": 60.0, "gpus": 8}
    told = "\n".join(format_expectation(COMMAND, {}, remedies, 3, **options, flaky=0.95))  # type: ignore[arg-type]
    starts = estimate_flaky_starts(len(remedies), 0.1)
    assert f"about {starts} times if it hangs in one start of ten" in told
    assert f"that is {starts} min" in told
    assert "29 clean starts" in told
    assert f"about {estimate_starts(remedies, 3).about} times" not in told


def test_more_toggles_and_more_confirmation_are_more_starts() -> None:
    remedies = choose_toggles(plan()).remedies
    assert estimate_starts(remedies, 5).about == estimate_starts(remedies, 3).about + 4
    assert estimate_starts(remedies, 3).most > estimate_starts(remedies[:2], 3).most


def test_what_comes_and_goes_is_told_with_its_hours() -> None:
    trial = Trial(1, {}, "pass", "ok", 60.0, COMMAND, {}, "iso/trials/01")
    told = "\n".join(format_flaky_expectation(4, [trial], 0.95))
    assert "1 start and no hang" in told
    assert "29 clean starts" in told
    assert " h " in told
