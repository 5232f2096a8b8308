"""The way from a hang to what avoids it, with jobs that are functions of their setting."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hangbisect.base.verdict_facts import Result, Setting, Try, Wait
from hangbisect.report.isolation_text import answer_lines
from hangbisect.search.isolation import Count, Isolation
from hangbisect.search.trial_results import estimate_starts
from hangbisect.toggles.table import TOGGLES
from hangbisect.toggles.toggle import own_toggle
from hangbisect.trials.isolation_plan import Budget, IsolationPlan, choose_toggles
from hypothesis import given
from hypothesis import strategies as st

from .simulated_job import Behaves, Job, hangs_unless, plan

WANDB = {"wandb": ("offline", "off")}


def found(isolation: Isolation) -> dict[str, str]:
    return {change.toggle: change.value for change in isolation.changes}


def test_one_toggle_is_found_walked_back_and_confirmed() -> None:
    job = Job(hangs_unless(WANDB))
    isolation = job.isolate(plan())
    assert isolation.outcome == "isolated"
    assert found(isolation) == {"wandb": "offline"}
    assert isolation.changes[0].before == "logger"
    assert isolation.paste.endswith("--wandb offline")
    assert isolation.with_it is not None
    assert isolation.without is not None
    assert (isolation.with_it.hangs, isolation.with_it.starts) == (0, 3)
    assert (isolation.without.hangs, isolation.without.starts) == (3, 3)
    assert isolation.p_value == pytest.approx(0.05)
    assert len(isolation.trials) <= estimate_starts(choose_toggles(plan()).remedies, 3).about


def test_two_toggles_that_only_together_avoid_it_are_both_found() -> None:
    pair = {"num_workers": ("0",), "strategy": ("ddp",)}
    isolation = Job(hangs_unless(pair)).isolate(plan())
    assert isolation.outcome == "isolated"
    assert found(isolation) == {"num_workers": "0", "strategy": "ddp"}
    assert "--strategy ddp" in isolation.paste
    assert "--num-workers 0" in isolation.paste


def test_what_the_verdict_says_to_try_is_tried_first() -> None:
    job = Job(hangs_unless(WANDB))
    job.isolate(plan())
    assert [set(ask.setting) for ask in job.asked[2:3]] == [{"wandb"}]


@pytest.mark.parametrize("name", [toggle.name for toggle in choose_toggles(plan()).remedies])
def test_any_remedy_is_found_without_a_hint(name: str) -> None:
    toggle = next(t for t in choose_toggles(plan()).remedies if t.name == name)
    job = Job(hangs_unless({name: toggle.values[1:]}))
    job.verdict = replace(job.verdict, component=None, try_=())
    isolation = job.isolate(plan())
    assert found(isolation) == {name: toggle.values[1]}
    assert len(isolation.trials) <= estimate_starts(choose_toggles(plan()).remedies, 3).most


def test_the_question_names_the_hang_and_how_long_it_must_stand_still() -> None:
    job = Job(hangs_unless(WANDB))
    job.isolate(plan())
    first, second, later = (ask.question for ask in job.asked[:3])
    assert (first.place, first.still) == (None, None)
    assert second.place is not None
    assert second.still is None  # nothing has passed yet
    assert later.still == 5.0  # twice the 2.5 s that the passing one spent there


def test_a_job_that_hangs_even_with_all_safe_is_described_by_probes() -> None:
    job = Job(lambda setting, number: "pass" if setting.get("world_size") == "1" else "hang")
    isolation = job.isolate(plan())
    assert isolation.outcome == "hangs_all_safe"
    assert isolation.changes == ()
    assert "hangs at 2 ranks, not at 1" in isolation.described


def test_probes_are_not_started_unless_asked_for_where_a_remedy_helps() -> None:
    job = Job(hangs_unless(WANDB))
    job.isolate(plan())
    assert not any("world_size" in ask.setting for ask in job.asked)
    asked = Job(hangs_unless(WANDB, {"world_size": ("1",)}))
    isolation = asked.isolate(plan(describe=True))
    assert "hangs at 2 ranks, not at 1" in isolation.described
    assert found(isolation) == {"wandb": "offline"}


def test_a_toggle_that_does_harm_of_its_own_is_named_and_left_out() -> None:
    def behaves(setting: Setting, number: int) -> Result:
        if setting.get("strategy") == "ddp":
            return "other"
        return hangs_unless(WANDB)(setting, number)

    isolation = Job(behaves).isolate(plan())
    assert isolation.outcome == "isolated"
    assert found(isolation) == {"wandb": "offline"}
    assert isolation.harmful == ("strategy=ddp",)


def test_what_crashes_as_it_is_run_is_said_and_nothing_is_searched() -> None:
    job = Job(lambda setting, number: "other")
    isolation = job.isolate(plan())
    assert isolation.outcome == "not_isolated"
    assert len(job.asked) == 1
    assert "as you run it it does not hang: crash" in isolation.why


def test_it_is_said_how_to_look_for_what_avoids_a_crash() -> None:
    isolation = Job(lambda setting, number: "other").isolate(plan())
    assert "hangbisect isolate --crash -- torchrun" in isolation.next


def test_what_avoids_a_crash_is_found_in_the_same_way_where_that_is_asked_for() -> None:
    job = Job(hangs_unless(WANDB))
    isolation = job.isolate(plan(crash=True, options={"crash": True}))
    assert found(isolation) == {"wandb": "offline"}
    assert all(ask.question.crash for ask in job.asked)
    lines = answer_lines(isolation, folder="iso")
    assert "it crashes with wandb=logger, not with wandb=offline" in lines[0]
    assert any("3 crashes in 3 starts" in line for line in lines)
    assert not re.search(r"\bhangs?\b", "\n".join(lines[:5]))


def test_no_more_starts_than_asked_for() -> None:
    job = Job(hangs_unless(WANDB))
    isolation = job.isolate(plan(budget=Budget(starts=3)))
    assert len(job.asked) == 3
    assert isolation.outcome == "not_isolated"
    assert "--max-trials 3" in isolation.why
    assert "wandb=" in isolation.why  # the best so far


def test_no_start_gets_more_time_than_is_left() -> None:
    job = Job(hangs_unless(WANDB), seconds=10.0)
    isolation = job.isolate(plan(budget=Budget(seconds=25.0)))
    assert job.limits == [25.0, 15.0, 5.0]
    assert "--max-time 25 s is reached" in isolation.why


def test_what_passes_between_two_starts_is_time_as_well() -> None:
    job = Job(hangs_unless(WANDB), seconds=10.0)
    job.between = 5.0
    job.isolate(plan(budget=Budget(seconds=40.0)))
    assert job.limits == [40.0, 25.0, 10.0]


def test_what_is_known_is_kept_after_every_start() -> None:
    job = Job(hangs_unless(WANDB))
    job.isolate(plan())
    assert [len(one.trials) for one in job.kept] == [*range(1, len(job.asked) + 1)]
    assert {one.outcome for one in job.kept} == {"interrupted"}  # so far: it can be resumed


@pytest.mark.parametrize("after", [1, 2, 4, 7])
def test_an_interrupted_isolation_goes_on_and_repeats_no_start(after: int) -> None:
    whole = Job(hangs_unless(WANDB))
    answer = whole.isolate(plan())

    def interrupted(setting: Setting, number: int) -> Result:
        if number > after:
            first.stopping.set()
        return hangs_unless(WANDB)(setting, number)

    first = Job(interrupted)
    begun = first.isolate(plan())
    assert begun.outcome == "interrupted"
    assert len(begun.trials) == after
    second = Job(hangs_unless(WANDB))
    ended = second.isolate(plan(), recorded=begun.trials)
    assert len(second.asked) == len(whole.asked) - after
    assert [t.setting for t in ended.trials] == [t.setting for t in answer.trials]
    assert (ended.outcome, found(ended)) == (answer.outcome, found(answer))


def test_a_lock_in_a_cache_is_answered_with_caches_of_its_own() -> None:
    job = Job(hangs_unless({"caches": ("own",)}))
    lock = Wait("lock", "/home/a/.cache/huggingface/hub/.locks/x.lock")
    job.verdict = replace(job.verdict, waits_for=lock, component="hub")
    isolation = job.isolate(plan())
    assert isolation.outcome == "isolated"
    assert found(isolation) == {"caches": "own"}
    assert isolation.paste.startswith("HF_HOME=$(mktemp -d) ")
    assert isolation.p_value == pytest.approx(0.05)


def test_a_lock_that_is_elsewhere_leaves_each_start_with_caches_of_its_own() -> None:
    job = Job(hangs_unless(WANDB))
    job.verdict = replace(job.verdict, waits_for=LOCK)
    isolation = job.isolate(plan())
    assert found(isolation) == {"wandb": "offline"}
    assert all(ask.setting.get("caches") == "own" for ask in job.asked[1:])
    assert "caches" not in isolation.paste


LOCK = Wait("lock", "/home/a/.triton/cache/x.lock")


@pytest.mark.parametrize("last", ["confirm", "crash", "budget"])
def test_own_caches_are_not_called_proven_where_nothing_confirmed_it(last: str) -> None:
    def behaves(setting: Setting, number: int) -> Result:
        if last == "crash" and number > 2:
            return "other"
        return hangs_unless({"caches": ("own",)})(setting, number)

    job = Job(behaves)
    job.verdict = replace(job.verdict, waits_for=LOCK)
    made = plan(confirm=0) if last == "confirm" else plan()
    if last == "budget":
        made = plan(budget=Budget(starts=3))
    isolation = job.isolate(made)
    assert isolation.outcome == ("isolated" if last == "confirm" else "not_isolated")
    assert isolation.p_value is None
    assert last == "confirm" or "caches=own" in isolation.why


@pytest.mark.parametrize("with_it", [True, False])
def test_what_only_crashes_where_it_is_confirmed_is_not_isolated(with_it: bool) -> None:
    def behaves(setting: Setting, number: int) -> Result:
        if number > 5 and bool(setting) == with_it:
            return "other"
        return hangs_unless(WANDB)(setting, number)

    isolation = Job(behaves).isolate(plan())
    assert isolation.outcome == "not_isolated"
    assert "wandb=offline avoided it, and was not confirmed" in isolation.why
    count = isolation.with_it if with_it else isolation.without
    assert count == Count(starts=3, hangs=0, others=3)
    assert isolation.p_value is None


def test_what_is_confirmed_stands_when_the_starts_are_used_up_by_probes() -> None:
    job = Job(hangs_unless(WANDB, {"world_size": ("1",)}))
    isolation = job.isolate(plan(describe=True, budget=Budget(starts=11)))
    assert len(job.asked) == 11
    assert isolation.outcome == "isolated"
    assert found(isolation) == {"wandb": "offline"}


def test_that_no_toggle_avoids_it_is_said_though_no_start_is_left_for_probes() -> None:
    isolation = Job(lambda setting, number: "hang").isolate(plan(budget=Budget(starts=2)))
    assert isolation.outcome == "hangs_all_safe"
    assert "--max-trials 2 is reached" in isolation.why


def test_only_and_without_choose_toggles() -> None:
    job = Job(hangs_unless(WANDB))
    isolation = job.isolate(plan(only=("strategy", "num_workers")))
    assert isolation.outcome == "hangs_all_safe"
    assert isolation.unused["wandb"] == "not in --only"
    left = Job(hangs_unless(WANDB)).isolate(plan(without=("wandb",)))
    assert left.outcome == "hangs_all_safe"


def test_nothing_to_turn_off_is_said() -> None:
    isolation = Job(hangs_unless(WANDB)).isolate(plan(only=("wandb",), without=("wandb",)))
    assert isolation.outcome == "not_isolated"
    assert "no toggle changes anything" in isolation.why


def a_users_own() -> IsolationPlan:
    return plan(command=("torchrun", "--nproc_per_node=2", "train.py"), ours=False)


def test_a_users_own_command_gets_variables() -> None:
    isolation = Job(hangs_unless(WANDB)).isolate(a_users_own())
    assert isolation.paste == "WANDB_MODE=offline torchrun --nproc_per_node=2 train.py"


# ---- hangs that come and go ----------------------------------------------------------------------


def comes_and_goes(every: int) -> Behaves:
    """Return a job that hangs in one of `every` starts unless W&B is offline or off."""

    def behaves(setting: Setting, number: int) -> Result:
        safe = setting.get("wandb") in WANDB["wandb"]
        return "hang" if number % every == 0 and not safe else "pass"

    return behaves


def test_a_first_start_without_a_hang_goes_on_as_one_that_comes_and_goes() -> None:
    job = Job(comes_and_goes(3))
    isolation = job.isolate(plan())
    assert isolation.flaky
    assert isolation.outcome == "isolated"
    assert found(isolation) == {"wandb": "offline"}
    assert isolation.p_value is not None
    assert isolation.p_value <= 0.025
    assert "1 start and no hang" in job.questions[0][0]
    assert "29 clean starts" in job.questions[0][0]
    assert all(ask.setting["barriers"] == "off" for ask in job.asked[1:])
    assert "barriers" not in isolation.paste


def asked_first(job: Job) -> Setting:
    """Return what is asked for first after the job as it is run, and all safe."""
    settings = [
        {name: value for name, value in ask.setting.items() if name != "barriers"}
        for ask in job.asked
    ]
    changed = [setting for setting in settings if setting]
    return next(setting for setting in changed if setting != changed[0])


@pytest.mark.parametrize("flaky", [True, False])
def test_the_diagnosis_of_the_first_hang_that_comes_and_goes_says_what_is_tried_first(
    flaky: bool,
) -> None:
    job = Job(comes_and_goes(3))
    isolation = job.isolate(plan(flaky=flaky))
    assert found(isolation) == {"wandb": "offline"}
    assert asked_first(job) == {"wandb": "off"}


def test_the_host_of_a_hang_that_comes_and_goes_is_the_one_that_is_excepted() -> None:
    def behaves(setting: Setting, number: int) -> Result:
        safe = setting.get("proxy") in ("excepted:api.wandb.ai", "off")
        return "hang" if number % 3 == 0 and not safe else "pass"

    job = Job(behaves)
    job.verdict = replace(job.verdict, try_=(Try("proxy", "off", ""),))
    isolation = job.isolate(plan(environ={"HTTPS_PROXY": "http://proxy:80"}, flaky=True))
    assert found(isolation) == {"proxy": "excepted:api.wandb.ai"}


def test_a_lock_in_a_cache_that_comes_and_goes_is_answered_with_caches_of_its_own() -> None:
    def behaves(setting: Setting, number: int) -> Result:
        return "hang" if number % 3 == 0 and setting.get("caches") != "own" else "pass"

    job = Job(behaves)
    job.verdict = replace(job.verdict, waits_for=LOCK)
    isolation = job.isolate(plan(flaky=True))
    assert isolation.outcome == "isolated"
    assert found(isolation) == {"caches": "own"}
    assert asked_first(job) == {"caches": "own"}


def test_a_users_own_command_has_no_barriers_to_turn_off() -> None:
    job = Job(comes_and_goes(3))
    isolation = job.isolate(a_users_own())
    assert found(isolation) == {"wandb": "offline"}
    assert not any("barriers" in ask.setting for ask in job.asked)


def test_who_does_not_agree_to_many_starts_gets_none() -> None:
    job = Job(comes_and_goes(3))
    job.agrees = False
    isolation = job.isolate(plan())
    assert isolation.outcome == "interrupted"
    assert isolation.next == "hangbisect isolate --resume iso"
    assert len(job.asked) == 1


def test_what_is_asked_for_as_one_that_comes_and_goes_is_not_asked_about_again() -> None:
    job = Job(comes_and_goes(3))
    job.agrees = False
    assert job.isolate(plan(flaky=True)).outcome == "isolated"
    assert job.questions == []


def test_a_job_that_never_hangs_is_said_to_have_shown_no_hang() -> None:
    isolation = Job(lambda setting, number: "pass").isolate(plan())
    assert isolation.outcome == "no_hang"
    assert len(isolation.trials) > 29
    assert "hangbisect run --repeat" in isolation.next


def test_what_passes_once_while_it_is_confirmed_comes_and_goes() -> None:
    def behaves(setting: Setting, number: int) -> Result:
        if number == 7:  # as it is run, while the answer is confirmed
            return "pass"
        return hangs_unless(WANDB)(setting, number)

    job = Job(behaves)
    isolation = job.isolate(plan())
    assert isolation.flaky
    assert isolation.outcome == "isolated"
    assert found(isolation) == {"wandb": "offline"}


def test_few_starts_of_a_hang_that_comes_and_goes_prove_nothing() -> None:
    isolation = Job(comes_and_goes(3)).isolate(plan(budget=Budget(starts=20)))
    assert isolation.outcome == "not_isolated"
    assert "--max-trials 20 is reached; as you run it 4 of 11 starts hung" in isolation.why


def test_a_hang_that_comes_seldom_is_counted() -> None:
    isolation = Job(comes_and_goes(60)).isolate(plan())
    assert isolation.why.startswith("it hangs too seldom to be searched; as you run it 3 of ")


@given(st.sampled_from(sorted(t.name for t in choose_toggles(plan()).remedies)), st.data())
def test_it_always_ends_with_an_answer_that_the_job_confirms(
    name: str, data: st.DataObject
) -> None:
    """Any job that hangs unless some toggles are changed, and crashes with some others."""
    remedies = {t.name: t for t in choose_toggles(plan()).remedies}
    others = data.draw(st.sets(st.sampled_from(sorted(set(remedies) - {name})), max_size=2))
    harmful = data.draw(
        st.sets(st.sampled_from(sorted(set(remedies) - {name} - others)), max_size=1)
    )
    needed = {one: remedies[one].values[1:] for one in (name, *others)}

    def behaves(setting: Setting, number: int) -> Result:
        return "other" if harmful & set(setting) else hangs_unless(needed)(setting, number)

    job = Job(behaves)
    isolation = job.isolate(plan())
    assert isolation.outcome == "isolated"
    assert found(isolation) == {one: values[0] for one, values in needed.items()}
    assert set(isolation.harmful) == {f"{one}={remedies[one].values[-1]}" for one in harmful}


def test_a_toggle_of_ones_own_comes_before_those_of_the_table() -> None:
    mine = own_toggle("cache", words={"with": ("--cache",), "none": ("--no-cache",)})
    own = plan(command=("torchrun", "train.py"), ours=False, table=(*TOGGLES, mine))
    assert choose_toggles(own).remedies[0].name == "cache"
    job = Job(hangs_unless({"cache": ("none",)}))
    job.verdict = replace(job.verdict, component=None, try_=())
    isolation = job.isolate(own)
    assert "cache" in job.asked[2].setting  # the first half
    assert (isolation.changes[0].before, isolation.changes[0].value) == ("with", "none")


def test_the_command_of_a_file_is_pasted_with_its_folder_and_interpreter() -> None:
    launcher = plan(
        command=("/l/torchrun", "-m", "bisect"),
        environment={"NNODES": "1", "PATH": "/my venv/bin:/usr/bin"},
        folder="/my work",
    )
    isolation = Job(hangs_unless(WANDB)).isolate(launcher)
    assert isolation.paste == (
        "cd '/my work' && PATH='/my venv/bin':\"$PATH\" NNODES=1 "
        "/l/torchrun -m bisect --wandb offline"
    )
