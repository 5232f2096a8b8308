"""The command: what it prints, and what it says of a wrong word."""

from __future__ import annotations

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.commands import zoo


def test_every_case_is_a_line_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo.run([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("I10 ") for line in lines)
    assert "only under run and attach" in next(line for line in lines if line.startswith("I09 "))


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_its_help_is_that_of_all_three_words(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        zoo.run([word])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: hangbisect zoo [-h] [list | show ID ... | run [ID ...]]\n")
    assert "hangbisect zoo run [I10 ...]" in printed


def test_each_word_has_a_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for word in zoo.WORDS:
        with pytest.raises(SystemExit):
            zoo.run([word, "--help"])
        assert capsys.readouterr().out.startswith(f"usage: hangbisect zoo {word} ")


def test_a_case_is_shown_with_its_story_and_its_truth(capsys: pytest.CaptureFixture[str]) -> None:
    assert zoo.run(["show", "I10"]) == 0
    shown = capsys.readouterr().out
    assert "wandb/wandb#5017" in shown
    assert "culprit      rank 0" in shown
    assert "avoided by   wandb=offline or wandb=off" in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rnu"], "did you mean 'run'"),
        (["run", "--jops", "2"], "did you mean '--jobs'"),
        (["run", "--jobs", "0"], "a whole number from 1"),
        (["run", "I999"], "the zoo has no case 'I999'"),
        (["run", "--json", "/no/such/folder/file"], "nothing can be written in /no/such/folder"),
        (["show"], "required"),
    ],
)
def test_a_wrong_word_gets_a_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        zoo.run(words)


def test_a_case_that_cannot_run_here_is_skipped_and_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert zoo.run(["run", "I09"]) == 0
    printed = capsys.readouterr().out
    assert "skipped: only under run and attach" in printed
    assert "located 0 of 0" in printed
