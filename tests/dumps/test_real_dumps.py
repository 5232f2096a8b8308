"""Dumps that the tools really wrote of one job: two ranks, of which rank 1 sleeps before an
all_reduce, with a worker each.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hangbisect.commands.results import merge
from hangbisect.dumps.files import read_files
from hangbisect.dumps.merge import MergedDumps, describe_divergence, judge_dumps, merge_dumps
from hangbisect.report.merged_dumps import merged_json, merged_lines

from ..transcripts import block

HERE = Path(__file__).parent / "real_dumps"
SETS = {
    "py-spy --native": ("py-spy-native-rank0.txt", "py-spy-native-rank1.txt"),
    "py-spy --locals": ("py-spy-locals-0.txt", "py-spy-locals-1.txt"),
    "pystack": ("pystack-rank0.txt", "pystack-rank1.txt"),
    "pystack --native --locals": (
        "pystack-native-locals-rank0.txt",
        "pystack-native-locals-rank1.txt",
    ),
    "faulthandler": ("faulthandler-0.log", "faulthandler-1.log"),
    "flight recorder": ("recorder_rank_0", "recorder_rank_1"),
    "flight recorder, JSON": ("recorder_rank_0.json", "recorder_rank_1.json"),
    "stacks and recorder": ("py-spy-locals-1.txt", "recorder_rank_0", "recorder_rank_1.json"),
}


def merged(*names: str) -> MergedDumps:
    found = read_files(str(HERE / name) for name in names)
    assert found.unreadable == ()
    return merge_dumps(found)


@pytest.mark.parametrize("names", SETS.values(), ids=SETS)
def test_the_rank_that_the_other_waits_for_is_to_blame(names: tuple[str, ...]) -> None:
    found = merged(*names)
    assert [one.number for one in found.ranks] == [0, 1]
    verdict = judge_dumps(found)
    assert verdict.outcome == "hang"
    assert (verdict.ranks.culprit, verdict.ranks.waiting) == ((1,), (0,))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("py-spy --native", "time.sleep"),
        ("pystack", "time.sleep"),
        ("pystack --native --locals", "time.sleep"),
        ("py-spy --locals", "train.prepare"),
        ("faulthandler", "train.prepare"),
        ("flight recorder", None),
    ],
)
def test_the_call_is_what_the_stack_tells(name: str, call: str | None) -> None:
    assert judge_dumps(merged(*SETS[name])).call == call


def test_a_sleep_of_pythons_is_no_native_function_that_hangs() -> None:
    cause = judge_dumps(merged(*SETS["py-spy --native"])).cause
    assert cause is not None
    assert cause.id == "own-code-sleeps"


def test_a_whole_tree_of_processes_has_ranks_without_a_number() -> None:
    found = merged("py-spy-subprocesses.txt")
    assert [one.number for one in found.ranks] == [None, None]
    assert [len(one.facts.children) for one in found.ranks] == [1, 1]
    assert "the launcher" in found.notes[0]
    verdict = judge_dumps(found)
    lines = "\n".join(merged_lines(found, verdict, ""))
    assert "culprit   rank ?(15583) pid 15583 in train.prepare" in lines
    assert "DataLoader worker: 2 children" in lines
    assert "-1000" not in lines
    assert merged_json(found, verdict, "", ())["verdict"]["ranks"]["culprit"] == [None]


def test_of_a_file_with_several_dumps_all_are_looks_at_one_rank() -> None:
    found = merged("faulthandler-0.log", "faulthandler-1.log")
    assert [len(one.facts.looks) for one in found.ranks] == [2, 2]
    lines = merged_lines(found, judge_dumps(found), "")
    assert "up to 2 dumps of a rank" in "\n".join(lines)


def test_recorders_say_which_collective_a_rank_never_entered() -> None:
    found = merged(*SETS["flight recorder"])
    sentence = describe_divergence(found)
    assert sentence.startswith("rank 1 never entered operation 3 of group 0, all_reduce")
    assert sentence in "\n".join(merged_lines(found, judge_dumps(found), sentence))


def test_one_rank_that_waits_for_others_accuses_nobody() -> None:
    found = merged("pystack-rank0.txt")
    verdict = judge_dumps(found)
    assert verdict.ranks.culprit == ()
    assert "merge the dumps of the others too" in "\n".join(merged_lines(found, verdict, ""))


def test_a_rank_whose_file_has_no_stack_is_not_seen(tmp_path: Path) -> None:
    (tmp_path / "spy-rank1.txt").write_text("Process 7: python train.py\nPython v3.11.7\n\n")
    native = HERE / "py-spy-native-rank0.txt"
    found = merge_dumps(read_files([str(native), str(tmp_path / "spy-rank1.txt")]))
    assert found.unseen == (1,)
    assert judge_dumps(found).ranks.culprit == ()


def test_where_the_recorder_knows_of_more_ranks_they_are_named_as_not_seen() -> None:
    found = merged("recorder_rank_0")
    assert found.unseen == (1,)
    assert judge_dumps(found).ranks.culprit == ()
    lines = "\n".join(merged_lines(found, judge_dumps(found), ""))
    assert "not seen  rank 1: the one at fault may be among them" in lines


@pytest.mark.parametrize(
    ("names", "begins"),
    [
        ("pystack-rank0.txt pystack-rank1.txt", "[0-1] <module>"),
        ("recorder_rank_0 recorder_rank_1", "collectives, as the flight recorder"),
    ],
)
def test_the_page_shows_what_is_printed(
    names: str,
    begins: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(HERE)
    assert block("how-to/dumps-you-have.md", f"hangbisect merge {names}")
    assert merge(names.split()) == 3
    shown = block("how-to/dumps-you-have.md", begins)
    assert capsys.readouterr().out.strip().splitlines() == shown
