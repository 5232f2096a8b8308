"""Our lines in logs that others saved."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hangbisect.base.errors import HangbisectError, UsageError
from hangbisect.base.line_prefixes import strip_prefixes
from hangbisect.base.place import find_place
from hangbisect.commands import report
from hangbisect.rank.lines import Lines
from hangbisect.report.saved_log_text import log_json, log_lines
from hangbisect.saved_log import Progress, read_our_lines, read_progress
from hypothesis import given
from hypothesis import strategies as st

from ..transcripts import block

# What a person's job printed: rank 1 stays in wandb.init.
JOB = """\
[05:20:01.000][+0.100s][R0/2][LR0][PID:11] CHECKPOINT 1: Script started
[05:20:01.100][+0.200s][R1/2][LR1][PID:12] CHECKPOINT 1: Script started
GPU available: False
[05:20:02.000][+1.100s][R0/2][LR0][PID:11] About to call wandb.init...
[05:20:02.200][+1.300s][R1/2][LR1][PID:12] About to call wandb.init...
[05:20:04.000][+3.100s][R0/2][LR0][PID:11] CHECKPOINT 9: WandbLogger ready
[05:20:30.000][+29.000s][watch][PID:13] looking
HANG  checkpoint 9 WandbLogger ready   31 s after start, 2 ranks
culprit   rank 1   n01 pid 12       in wandb.init
          12 -> 10.0.0.1:443 ESTABLISHED
waiting   rank 0 at our barrier: not at fault
Traceback (most recent call last):
"""


def seen(text: str) -> Progress:
    found = read_progress(read_our_lines(text.splitlines()))
    assert found is not None
    return found


PREFIXES = {
    "none": "{line}",
    "srun --label": "{n}: {line}",
    "torchrun --tee": "[default{n}]:{line}",
    "mpirun": "[1,{n}]<stdout>:{line}",
    "kubectl": "[pod/train-{n}/pytorch] 2026-11-22T05:20:00.1234567Z {line}",
    "GitHub Actions": "2026-11-22T05:20:00.1234567Z {line}",
    "a terminal": "\x1b[36m{line}\x1b[0m",
    "in another's line": "epoch 1:  50%|#####     | 3/6 {line}",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_whatever_stands_in_front_of_them(prefix: str) -> None:
    lines = [prefix.format(n=n % 2, line=line) for n, line in enumerate(JOB.splitlines())]
    found = seen("\n".join(lines))
    assert [(c.name, sorted(c.elapsed)) for c in found.checkpoints] == [("1", [0, 1]), ("9", [0])]
    assert found.missing(found.checkpoints[1]) == (1,)
    assert [one.last for one in found.ranks][1].startswith("About to call wandb.init")


def test_the_table_and_who_is_missing() -> None:
    assert log_lines(seen(JOB), "job.log") == [
        "job.log: 2 ranks, 2 with lines of their own",
        "",
        "checkpoint           rank 0  rank 1",
        "1 Script started      0.1 s   0.2 s",
        "9 WandbLogger ready   3.1 s       -  missing: rank 1",
        "",
        'last line rank 1, 28 s before the log\'s end, at +1.3 s: "About to call wandb.init..."',
        "last line rank 0, 26 s before the log's end, at +3.1 s: "
        '"CHECKPOINT 9: WandbLogger ready"',
        "missing   rank 1: not at checkpoint 9 WandbLogger ready",
        "",
        "the verdict, line 8 of the log",
        *JOB.splitlines()[7:11],
    ]


def test_the_page_shows_what_is_printed() -> None:
    shown = block("how-to/read-a-saved-log.md", "slurm-4711.out: ")
    assert log_lines(seen(JOB), "slurm-4711.out") == shown


def test_the_same_as_an_object() -> None:
    found = log_json(seen(JOB))
    assert found["checkpoints"][1]["missing"] == [1]
    assert found["ranks"][1]["age"] == 27.8
    assert found["verdict"][0].startswith("HANG  checkpoint 9")


def test_a_rank_that_said_nothing_is_silent() -> None:
    found = seen("[05:20:01.000][+0.100s][R0/3][LR0][PID:11] CHECKPOINT 1: Script started")
    assert found.silent == (1, 2)


def test_what_other_output_comes_later_counts_where_a_collector_wrote_the_time() -> None:
    ours = "[05:20:01.000][+0.100s][R0/1][LR0][PID:11] CHECKPOINT 1: Script started"
    log = f"2026-11-22T10:20:02.000Z {ours}\n2026-11-22T10:21:02.000Z waiting\n"
    assert seen(log).ranks[0].age == 60.0


def test_a_night_passes() -> None:
    log = (
        "[23:59:59.000][+0.100s][R0/1][LR0][PID:11] CHECKPOINT 1: Script started\n"
        "[00:00:05.000][+0.100s][watch][PID:12] looking\n"
    )
    assert seen(log).ranks[0].age == 6.0


def test_of_several_starts_the_last_counts() -> None:
    again = JOB.replace("PID:11", "PID:21").replace("PID:12", "PID:22").splitlines()[:2]
    found = seen(JOB + "\n".join(again))
    assert [one.starts for one in found.ranks] == [2, 2]
    assert [c.name for c in found.checkpoints] == ["1"]


def test_a_rank_that_was_alone_at_first_is_the_rank_that_it_became() -> None:
    log = (
        "[05:20:01.000][+0.100s][R0/1][LR0][PID:12] CHECKPOINT 1: Script started\n"
        "[05:20:02.000][+1.100s][R1/2][LR1][PID:12] CHECKPOINT trainer: Trainer ready\n"
    )
    assert {c.name: sorted(c.elapsed) for c in seen(log).checkpoints} == {"1": [1], "trainer": [1]}


def test_a_step_of_one_rank_alone_is_missed_by_nobody() -> None:
    line = "[05:20:01.000][+{at}.000s][R{r}/2][LR{r}][PID:1{r}] CHECKPOINT {c}\n"
    log = line.format(at=1, r=0, c="login: W&B") + "".join(
        line.format(at=2, r=r, c="fit: fits (no. 2)") for r in (0, 1)
    )
    found = seen(log)
    assert [c.words for c in found.checkpoints] == ["login W&B", "fit fits"]
    assert [found.missing(c) for c in found.checkpoints] == [(), ()]


def test_what_the_watch_says_of_many_ranks() -> None:
    log = (
        "[05:20:01.000][+1.000s][watch][PID:9] CHECKPOINT 4: Tokenizer loaded  ranks 0-30, "
        "+3.1 s to +9.8 s\n[05:20:02.000][+2.000s][R31/32][LR31][PID:8] About to call x...\n"
    )
    found = seen(log)
    assert found.missing(found.checkpoints[0]) == (31,)
    assert "31 of 32" in "\n".join(log_lines(found, "x"))


def test_what_a_rank_really_prints_is_read(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        Lines(find_place({}), file.fileno()).say("CHECKPOINT 3: Logs directory ready")
    (one,) = read_our_lines((tmp_path / "log").read_text().splitlines()).lines
    assert (one.rank, one.world, one.text) == (0, 1, "CHECKPOINT 3: Logs directory ready")


_PARTS = st.sampled_from(
    [
        *("[05:20:01.000]", "[+0.100s]", "[R0/2]", "[LR0]", "[PID:11]", "[watch]", " "),
        *("CHECKPOINT 1: x", "CHECKPOINT x: y  ranks 0-,9-3, +1 s to 2", "HANG  x", "\x1b[3"),
        *(
            "2026-13-41T99:99:99Z ",
            "0: ",
            "[99:99:99.999][+1.000s][R9/1][LR0][PID:1] CHECKPOINT 2: z",
        ),
    ]
)


@given(st.lists(st.lists(_PARTS | st.text(max_size=4), max_size=9).map("".join), max_size=9))
def test_any_log(lines: list[str]) -> None:
    found = read_progress(read_our_lines(lines))
    if found is not None:
        assert log_lines(found, "x", 80)
        log_json(found)


@given(st.text(max_size=60))
def test_any_line_is_stripped_of_no_more_than_it_has(text: str) -> None:
    assert strip_prefixes(text).text in text or "\x1b" in text


def test_the_command_says_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.log").write_text("epoch 1\n")
    with pytest.raises(HangbisectError, match="no line of ours"):
        report.run([str(tmp_path / "other.log")])
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        report.run([str(tmp_path / "absent.log")])
    with pytest.raises(UsageError, match="a folder without a verdict"):
        report.run([str(tmp_path)])
    (tmp_path / "verdict.json").write_text('{"schema": 1}')
    with pytest.raises(HangbisectError, match=r"verdict\.json is no verdict: its outcome"):
        report.run([str(tmp_path)])
    (tmp_path / "job.log").write_text(JOB)
    assert report.run([str(tmp_path / "job.log"), "--json"]) == 0
    assert '"silent": []' in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))
    assert report.run(["-"]) == 0
    assert capsys.readouterr().out.startswith("stdin: 2 ranks")
