"""`hangbisect bundle`: what is in it, what is not, and that nothing escapes from it."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hangbisect.base.errors import HangbisectError, UsageError
from hangbisect.cli import main
from hangbisect.report.bundle import MOST_BYTES, make_bundle

from ..kept.made_up import VERDICT

KEY = "hf_" + "aB3" * 11


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with a verdict, stacks, events, logs, and a secret in each."""
    folder = tmp_path / "runs" / "20261120T174812-a1"
    (folder / "stacks").mkdir(parents=True)
    (folder / "logs").mkdir()
    write_json(folder / "verdict.json", {**VERDICT, "command": ["train.py", "--hub-token", KEY]})
    ranks = {"0": {"MY_API_KEY": "correct-horse-7"}}
    write_json(folder / "environment.json", {"versions": {}, "host": "n03", "ranks": ranks})
    (folder / "stacks" / "rank-0.txt").write_text(f"Thread 1\n    key = '{KEY}'\n")
    (folder / "stacks" / "merged.txt").write_text("all ranks\n")
    event = {"t": "line", "at": 1.0, "rank": 0, "text": f"as {KEY} on n03 at 10.1.2.3"}
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    (folder / "logs" / f"{KEY}.log").write_text("said correct-horse-7\n")
    return folder


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def unzipped(path: Path) -> dict[str, bytes]:
    """Return what is in a bundle, by its name below the bundle's one folder."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len({PurePosixPath(name).parts[0] for name in names}) == 1
        assert len(names) == len({name.lower() for name in names})
        for name in names:
            assert not name.startswith("/"), name
            assert "\\" not in name, name
            assert all(part not in ("", ".", "..") for part in name.split("/")), name
            assert name.isprintable(), name
        return {name.split("/", 1)[1]: archive.read(name) for name in names}


def manifest(files: dict[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files["manifest.json"])
    return found


def test_it_holds_the_run_redacted_beside_reports_made_fresh(run: Path) -> None:
    (run / "report.md").write_text("old")
    made = make_bundle(run)
    assert made.path == run.with_name(f"{run.name}.zip")
    files = unzipped(made.path)
    assert {"verdict.json", "environment.json", "events.jsonl", "report.md", "report.html"} < set(
        files
    )
    assert {"stacks/rank-0.txt", "stacks/merged.txt"} < set(files)
    assert files["report.md"] != b"old"
    assert not [name for name, data in files.items() if KEY.encode() in data or KEY in name]
    assert not [name for name, data in files.items() if b"correct-horse" in data]
    for name in ("verdict.json", "stacks/rank-0.txt", "events.jsonl"):
        assert b"[Hugging Face token 1]" in files[name], name
    assert files["logs/[Hugging Face token 1].log"] == b"said [API key 1]\n"


def test_the_manifest_counts_what_was_replaced_and_names_every_file(run: Path) -> None:
    files = unzipped(make_bundle(run).path)
    told = manifest(files)
    assert told["schema"] == 1
    assert told["outcome"] == "hang"
    assert {one["name"] for one in told["files"]} == set(files) - {"manifest.json"}
    assert all(one["bytes"] == len(files[one["name"]]) for one in told["files"])
    assert told["redaction"] == {
        "anonymous": False,
        "secrets": 2,
        "replaced": {"API key": 2, "Hugging Face token": 3},
    }


def test_anonymous_replaces_hosts_and_addresses_and_says_so(run: Path) -> None:
    files = unzipped(make_bundle(run, anonymous=True).path)
    assert not [name for name, data in files.items() if b"n03" in data or b"10.1.2.3" in data]
    assert b"on host-1 at address-2" in files["events.jsonl"]
    assert manifest(files)["redaction"]["replaced"]["host name"] >= 2


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    first = make_bundle(run, tmp_path / "a.zip").path.read_bytes()
    moved = tmp_path / "elsewhere" / run.name
    shutil.copytree(run, moved)
    os.utime(moved / "verdict.json", (1, 1))
    os.chdir(moved.parent)  # named otherwise, it is the same
    assert make_bundle(Path(run.name), tmp_path / "b.zip").path.read_bytes() == first


def test_an_earlier_bundle_is_replaced_and_said_to_be(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bundle", str(run), "--output", str(tmp_path / "x.zip")]
    assert main(words) == 0
    assert capsys.readouterr().err == ""
    assert main(words) == 0
    assert "an earlier bundle was replaced" in capsys.readouterr().err


def test_anything_else_is_never_overwritten(run: Path, tmp_path: Path) -> None:
    there = tmp_path / "thesis.zip"
    there.write_bytes(b"mine")
    link = tmp_path / "link.zip"
    link.symlink_to(make_bundle(run, tmp_path / "ours.zip").path)
    for path in (there, link):
        with pytest.raises(UsageError, match="is there already"):
            make_bundle(run, path)
    assert there.read_bytes() == b"mine"
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set()


def test_a_folder_gets_it_by_the_name_of_the_run(run: Path, tmp_path: Path) -> None:
    assert make_bundle(run, tmp_path).path == tmp_path / f"{run.name}.zip"


def test_where_nothing_can_be_written_is_one_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(HangbisectError, match="cannot be written: No such file"):
        make_bundle(run, tmp_path / "no" / "x.zip")


def test_no_folder_and_no_run_are_one_sentence(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=r"folder"):
            make_bundle(folder)


def test_links_devices_and_strangers_stay_out(run: Path, tmp_path: Path) -> None:
    (tmp_path / "private.txt").write_text("not yours")
    (run / "stacks" / "rank-1.txt").symlink_to(tmp_path / "private.txt")
    (run / "logs" / "outside").symlink_to(tmp_path)
    (run / "logs" / "self").symlink_to(run)
    os.mkfifo(run / "logs" / "pipe.log")
    (run / "id_rsa").write_text("not yours")
    (run / "logs" / "weights.bin").write_bytes(b"not yours")
    files = unzipped(make_bundle(run).path)
    assert not [name for name, data in files.items() if b"not yours" in data]
    why = {one["name"]: one["why"] for one in manifest(files)["left_out"]}
    assert why["logs/outside"] == why["stacks/rank-1.txt"] == "it is a link, which is not followed"
    assert why["logs/pipe.log"] == "it is no regular file"
    assert "id_rsa" in why
    assert "logs/weights.bin" in why


def test_the_lock_of_a_run_folder_is_no_file_that_was_left_out(run: Path) -> None:
    """Every run has one: a reader would look for what is missing."""
    (run / ".lock").write_text("host 4711 1\n")
    (run / "node-1").mkdir()
    (run / "node-1" / ".lock").write_text("host 4711 1\n")
    assert manifest(unzipped(make_bundle(run).path))["left_out"] == []


def test_names_and_texts_may_be_anything(run: Path) -> None:
    for name in (b"<script>alert(1)<script>", b"a\nb", b"\x1b[31m", b"..x", b"\xff\xfe", b" "):
        (run / "logs" / os.fsdecode(name + b".log")).write_bytes(b"\x1b[2J\x1b]0;x\x07\xff" + name)
    (run / "logs" / "A.log").write_text("1")
    (run / "logs" / "a.log").write_text("2")
    (run / "stacks" / "rank-2.txt").write_bytes(b"a" * 1_000_000 + KEY.encode())
    (run / "evidence.json").write_text("[" * 100_000)
    (run / "verdict.json").write_text(json.dumps({**VERDICT, "call": "</script>\x1b[31m\u202e"}))
    files = unzipped(make_bundle(run).path)
    logs = [data for name, data in files.items() if name.startswith("logs/")]
    assert len(logs) == 9
    assert b"\x1b" not in b"".join(files.values())
    assert "\u202e".encode() not in b"".join(files.values())
    assert json.loads(files["verdict.json"])["outcome"] == "hang"
    assert KEY.encode() not in b"".join(files.values())


def test_what_does_not_fit_is_cut_the_least_useful_first(run: Path) -> None:
    chance = random.Random(1)
    noise = "\n".join(chance.randbytes(60).hex() for _ in range(400))
    for number in range(16):
        (run / "logs" / f"{number}.log").write_text(noise.replace("a", f"{number:x}"))
    events = [{"t": "line", "at": 1.0, "text": chance.randbytes(300).hex()} for _ in range(600)]
    (run / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    made = make_bundle(run, most=500_000)
    assert made.size == made.path.stat().st_size
    assert 300_000 < made.size <= 500_000
    assert MOST_BYTES == 5 << 20
    files = unzipped(made.path)
    told = manifest(files)
    cut = {one["name"]: one["cut"] for one in told["files"] if "cut" in one}
    assert "events.jsonl" in cut or any(name.startswith("logs/") for name in cut)
    assert {"verdict.json", "report.md", "report.html", "stacks/rank-0.txt"} < set(files)
    assert not {"verdict.json", "report.md", "stacks/rank-0.txt"} & set(cut)
    left = [one["name"] for one in told["left_out"]]
    assert left
    assert all(name.startswith("logs/") for name in left)


def test_evidence_that_does_not_fit_keeps_the_last_look_at_each_process(run: Path) -> None:
    chance = random.Random(1)
    looks = [{"at": n, "threads": chance.randbytes(200_000).hex()} for n in range(4)]
    write_json(run / "evidence.json", {"ranks": [{"rank": 0, "looks": looks}], "graph": {}})
    files = unzipped(make_bundle(run, most=600_000).path)
    (rank,) = json.loads(files["evidence.json"])["ranks"]
    assert [look["at"] for look in rank["looks"]] == [3]
    (told,) = [one for one in manifest(files)["files"] if one["name"] == "evidence.json"]
    assert told["cut"] == "only the last look at each process is kept"


def test_what_is_no_json_and_does_not_fit_is_left_out(run: Path) -> None:
    (run / "evidence.json").write_text("{" + random.Random(1).randbytes(300_000).hex())
    told = manifest(unzipped(make_bundle(run, most=300_000).path))
    assert "evidence.json" in {one["name"] for one in told["left_out"]}


def test_the_folder_of_an_isolation_goes_with_its_starts(run: Path, tmp_path: Path) -> None:
    whole = tmp_path / "iso-1"
    (whole / "trials").mkdir(parents=True)
    shutil.copytree(run, whole / "trials" / "01")
    (whole / "trials" / "01" / "output.txt").write_text(f"asked with {KEY}\n")
    write_json(whole / "isolation.json", {"schema": 1, "trials": [], "answer": f"as {KEY}"})
    files = unzipped(make_bundle(whole).path)
    assert files["trials/01/output.txt"] == b"asked with [Hugging Face token 1]\n"
    assert b"as [Hugging Face token 1]" in files["isolation.json"]
    assert "trials/01/verdict.json" in files
