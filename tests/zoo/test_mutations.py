"""Programs of cases, changed as other people would have written them."""

from __future__ import annotations

import argparse
from pathlib import Path

import mutations
import pytest
from hangbisect.zoo import case_files
from hangbisect.zoo.case_files import CaseFile
from hangbisect.zoo.comparison import find_what_is_asked

CASES = {kept.case.id: kept for kept in case_files.load_all_cases()}


def changed(id: str, way: str) -> str:
    kept = CASES[id]
    return mutations.MUTATIONS[way](kept, kept.file.read_text(encoding="utf-8"))


def loaded(id: str, way: str, folder: Path) -> CaseFile:
    file = folder / CASES[id].file.name
    file.write_text(changed(id, way), encoding="utf-8")
    return case_files.load_case(file)


@pytest.mark.parametrize("way", sorted(mutations.MUTATIONS))
def test_every_changed_case_can_be_loaded(way: str, tmp_path: Path) -> None:
    for id in CASES:
        made = loaded(id, way, tmp_path).case
        assert (made.id, made.needs) == (id, CASES[id].case.needs)


def test_a_program_is_renamed_where_it_is_made_and_where_it_is_called(tmp_path: Path) -> None:
    text = changed("H10", "names")
    assert '"aws"' not in text
    truth = loaded("H10", "names", tmp_path).case.truth
    assert truth.detail
    assert truth.detail in text.partition("CASE = ")[0]


def test_files_get_other_names_and_endings_and_the_truth_follows(tmp_path: Path) -> None:
    text = changed("J11", "names")
    assert "sqlite" not in text.partition("CASE = ")[0].replace("sqlite3", "")
    assert "index.sqlite" not in text


def test_names_that_others_give_stay() -> None:
    assert '"tokenizer.json"' in changed("H16", "names")
    assert "cgroup.procs" in changed("J14", "names")
    assert "127.0.0.1" in changed("H02", "names")
    assert '"nvidia-smi"' in changed("I38", "names")


def test_times_of_helpers_and_of_constants_are_scaled_too() -> None:
    assert "seconds=88" in changed("H16", "times x 4")
    assert "SECONDS = 80" in changed("I43", "times x 4")


def test_worlds_have_three_to_eight_ranks_and_the_culprit_in_the_middle(tmp_path: Path) -> None:
    sizes = set()
    for id, kept in CASES.items():
        if kept.case.culprit_goes != "anywhere":
            continue
        placed = loaded(id, "ranks", tmp_path).case
        (culprit,) = placed.truth.culprit
        assert 0 < culprit < placed.ranks - 1
        sizes.add(placed.ranks)
    assert sizes == {3, 4, 5, 6, 7, 8}


def test_a_call_inside_of_a_step_is_made_by_a_function_and_a_method_more() -> None:
    text = changed("H06", "inside")
    assert "_behind(lambda: " in text.partition("CASE = ")[0]
    assert "_behind(lambda: run_usual_step" not in text
    assert "_behind(lambda: super()" not in "".join(changed(id, "inside") for id in CASES)


def test_what_is_read_is_polled_before() -> None:
    assert "(_poll(mirror, mirror.gettimeout()), mirror.recv(65536))[1]" in changed("H02", "polls")
    assert "(_poll(reader, None), os.read(reader, 100))[1]" in changed("J51", "polls")
    assert "client.recv(100)" in changed("H42", "polls")  # that is the server


def test_a_sample_has_so_many_controls_as_are_asked_for() -> None:
    options = argparse.Namespace(sample=13, controls=3, seed=0)
    drawn = mutations.draw(list(CASES.values()), options)
    asked = [find_what_is_asked(kept.case) for kept in drawn]
    assert (len(drawn), asked.count("control")) == (13, 3)


def row(level: str | None, cause: str, id: str = "J30") -> dict[str, object]:
    return {
        **{"id": id, "way": "ranks", "asks": "hang", "level": level, "cause": cause},
        "said": {"cause": "endpoint-silent" if level else None},
    }


def test_causes_are_counted_by_what_the_tool_said_of_their_level() -> None:
    rows = [row("fits", "right"), row("fits", "wrong"), row("seen", "right"), row(None, "unknown")]
    lines = [
        line.split() for line in mutations.format_levels([*rows, row("guess", "")]).splitlines()
    ]
    seen, fits, guess, unknown = lines[1:]
    assert seen[:3] == ["seen", "1", "0"]
    assert fits[:3] == ["fits", "1", "1"]
    assert fits[-3:] == ["J30", "ranks", "(endpoint-silent)"]
    assert guess[:3] == ["guess", "0", "0"]  # of that case no cause is asked
    assert unknown == ["unknown", "0", "-", "J30", "ranks"]


def test_one_wrong_cause_in_twenty_may_fit() -> None:
    right = [row("fits", "right")] * 19
    assert mutations.fits_well([*right, row("fits", "wrong")])
    assert not mutations.fits_well([*right[1:], row("fits", "wrong")])
    assert mutations.fits_well([row("guess", "wrong"), row(None, "unknown")])


def located(*wrong: str, asks: str = "hang") -> dict[str, object]:
    return {"id": "J30", "way": "frames", "asks": asks, "wrong": list(wrong)}


def test_nine_in_ten_hangs_of_each_mutation_are_to_be_located() -> None:
    right, missed = [located()] * 9, located("culprit 0")
    assert mutations.locates_well([*right, missed])
    assert not mutations.locates_well([*right[1:], missed])
    # What is waited for may be the thread now; and of controls nothing is located.
    assert mutations.locates_well([located("waits for thread"), located("x", asks="control")])
    assert mutations.locates_well([])
