"""Scenario files: what they mean, and one clear sentence for whatever is wrong with one."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hangbisect.base.errors import UsageError
from hangbisect.search.cells import list_cells
from hangbisect.search.scenario import Isolate, OwnToggle, Scenario, Setting, Watch
from hangbisect.search.scenario_checks import toggles_of_scenario
from hangbisect.trials import scenario_file
from hangbisect.trials.matrix_launch import MatrixContext, format_launch, make_launch
from hypothesis import given, settings
from hypothesis import strategies as st

from ..examples import examples

OURS = {
    name: (scenario_file.scenario_folder() / f"{name}.yaml").read_text()
    for name in scenario_file.scenario_names()
}


def wrong(text: str) -> str:
    """Return what is said of a text, without the file's name."""
    with pytest.raises(UsageError) as error:
        scenario_file.parse_scenario(text, "my.yaml")
    return str(error.value).removeprefix("my.yaml:")


def right(text: str) -> Scenario:
    return scenario_file.parse_scenario(text, "my.yaml")


# ---- what they mean ------------------------------------------------------------------------------


def test_ours_are_these_and_each_says_what_it_examines() -> None:
    assert scenario_file.scenario_names() == ("nccl", "recommended", "startup", "strategy", "wandb")
    assert all(right(text).title and list_cells(right(text)) for text in OURS.values())


def test_the_recommended_starts_are_minimal_with_workers_and_one_process() -> None:
    assert [
        (cell.name, cell.launcher, cell.ranks, cell.words, cell.setting)
        for cell in list_cells(scenario_file.load_scenario("recommended"))
    ] == [
        ("minimal", "torchrun", 2, ("--fast-dev-run", "1"), {"num_workers": "0"}),
        ("with workers", "torchrun", 2, ("--fast-dev-run", "1"), {"num_workers": "1"}),
        ("one process", "python", 1, ("--fast-dev-run", "1"), {"num_workers": "0"}),
    ]


def test_axes_are_multiplied_and_exclusions_left_out() -> None:
    scenario = right(
        "axes: {wandb: [logger, off], ranks: [1, 2], launcher: python}\n"
        "exclude: [{wandb: off, ranks: 1}]\n"
    )
    assert [(c.number, c.name, c.setting, c.ranks) for c in list_cells(scenario)] == [
        (1, "wandb=logger ranks=1 launcher=python", {"wandb": "logger"}, 1),
        (2, "wandb=logger ranks=2 launcher=python", {"wandb": "logger"}, 2),
        (3, "wandb=off ranks=2 launcher=python", {"wandb": "off"}, 2),
    ]


def test_without_cells_it_is_run_as_it_is() -> None:
    (cell,) = list_cells(right("command: torchrun --nproc_per_node=4 train.py --lr '0.1 0.2'"))
    assert cell.words == ("torchrun", "--nproc_per_node=4", "train.py", "--lr", "0.1 0.2")
    assert (cell.launcher, cell.pipeline, cell.setting) == (None, None, {})


def test_a_cell_has_its_own_words_variables_and_limit_after_the_files() -> None:
    (cell,) = list_cells(
        right(
            "arguments: [--fast-dev-run, 1]\nenvironment: {A: 1, B: 2}\nlimit: 9\n"
            "settings: [{name: x, arguments: --num-workers 2, environment: {B: 3}, limit: 7.5}]"
        )
    )
    assert cell.words == ("--fast-dev-run", "1", "--num-workers", "2")
    assert (cell.environment, cell.limit) == ({"A": "1", "B": "3"}, 7.5)


def test_toggles_of_ones_own_script_are_applied_as_the_file_says(tmp_path: Path) -> None:
    scenario = right(
        "command: torchrun train.py\n"
        "own_toggles:\n"
        "  attn:\n"
        "    values: {flash: , eager: {arguments: --attn eager, environment: {X: 1}}}\n"
        "settings: [{name: a, toggles: {attn: eager}}, {name: b, toggles: {attn: flash}}]"
    )
    around = MatrixContext(toggles_of_scenario(scenario), {}, tmp_path, tmp_path)
    eager, flash = (make_launch(cell, around, {}) for cell in list_cells(scenario))
    assert eager.command == ("torchrun", "train.py", "--attn", "eager")
    assert eager.environment == {"X": "1"}
    assert flash.command == ("torchrun", "train.py")


def test_options_of_the_watch_are_those_of_the_command_line() -> None:
    watch = right("watch: {stall: 5, slow_limit: 2.5, timeout: {wandb_logger: 60, first_batch: 9}}")
    assert watch.watch.options() == {
        "stall": "5",
        "slow-limit": "2.5",
        "timeout": "first_batch=9,wandb_logger=60",
    }


# ---- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank: 2", "1: there is no key 'rank'; did you mean 'ranks'?"),
        ("ranks: 2\nranks: 3", "2: the key 'ranks' is there twice, first in line 1"),
        ("a: [", "1: it is no YAML: "),
        ("a: [\n", "1: it is no YAML: "),
        ("a: 1\nb: {c: [1, 2\n\n", "2: it is no YAML: "),
        ("ranks: two", "1: 'ranks' cannot be 'two': it is a whole number from 1"),
        ("ranks:", "1: 'ranks' cannot be empty: it is a whole number from 1"),
        ("ranks: [2]", "1: 'ranks' cannot be a list: it is a whole number from 1"),
        ("limit: -1", "1: 'limit' cannot be '-1': it is a number of seconds above 0"),
        ("limit: nan", "1: 'limit' cannot be 'nan': it is a number of seconds above 0"),
        ("pipeline: startp", "1: 'pipeline' cannot be 'startp': it is one of startup, "),
        ("title: t\ncommand: a && b", "2: 'command' cannot be 'a && b': no shell reads it, and"),
        ("command: A=1 python x.py", "1: 'command' cannot be 'A=1 python x.py': no shell reads"),
        ("command: python 'x", "1: 'command' cannot be \"python 'x\": it cannot be split into"),
        ("command: []", "1: 'command': it names no program"),
        ("command:\ntitle: x", "1: 'command' cannot be empty: leave the key out, or say what"),
        ("watch: {stall: }", "1: 'stall' cannot be empty: leave the key out, or say what it is"),
        ("settings: [{name: x, launcher: ~}]", "1: 'launcher' cannot be empty: leave the key"),
        ("command: [x, 'a', [b]]", "1: 'command' cannot be a list: it is a list of words, or"),
        ("command: x\npipeline: startup", "2: it names a pipeline and a command; it is one of"),
        ("command: x\narguments: y", "2: 'arguments' are a pipeline's"),
        ("command: x\nranks: 3", "2: 'ranks' is for a launcher, and 'command' is started"),
        ("arguments: --fast-dev-rum 1", "1: there is no argument '--fast-dev-rum'; did you mean"),
        ("arguments: --help", "1: --help walks nothing"),
        ("environment: {1A: x}", "1: 'environment': '1A' is no name of a variable"),
        ("environment:\n  A: 1\n  A=B: 2", "3: 'environment': 'A=B' is no name of a variable"),
        ("environment: [A]", "1: 'environment' cannot be a list: it is a mapping, NAME: VALUE"),
        ("watch: {stal: 3}", "1: there is no key 'stal'; did you mean 'stall'?"),
        ("watch: {timeout: {trainr: 3}}", "1: there is no checkpoint or phase 'trainr'; did you"),
        (
            "command: torchrun -m bisect\nwatch:\n  timeout: {wandb_loger: 3}",
            "3: there is no checkpoint or phase 'wandb_loger'; did you mean 'wandb_logger'?",
        ),
        ("settings: [{name: x, toggles: {wand: off}}]", "1: there is no toggle 'wand'; did you"),
        ("settings:\n- name: x\n  toggles: {wandb: of}", "3: wandb=of cannot be applied: it is"),
        ("settings: [{toggles: {}}]", "1: 'name' is missing"),
        ("settings: [{name: x}, {name: x}]", "1: two cells have the name 'x'"),
        ("settings: {name: x}", "1: 'settings' cannot be a mapping: it is a list"),
        ("settings: [x]", "1: 'settings' cannot be 'x': it is a mapping with keys"),
        ("settings: [{name: x}]\naxes: {ranks: 1}", "2: it has 'settings' and 'axes'; it is one"),
        ("axes: {rnks: [1, 2]}", "1: there is no toggle 'rnks'"),
        ("axes: {ranks: [0]}", "1: 'ranks' cannot be '0': it is a whole number from 1"),
        ("axes:\n  wandb:\n  - off\n  - off", "3: 'wandb' has the value 'off' twice"),
        ("axes: {ranks: 1}\nexclude: [{rank: 1}]", "2: it excludes 'rank', which is no axis; did"),
        ("axes: {ranks: 1}\nexclude: [{ranks: 2}]", "2: it excludes ranks=2, which is no value"),
        ("axes: {ranks: 1}\nexclude: [{ranks: 1}]", "2: every combination is excluded"),
        ("command: x\naxes:\n  ranks: [1, 2]", "3: 'ranks' is for a launcher, and 'command' is"),
        ("title: x\nlauncher: torchrn", "2: there is no launcher 'torchrn'; there are acc"),
        ("settings:\n- name: x\n  launcher: sruns", "3: there is no launcher 'sruns'; there"),
        ("axes:\n  launcher:\n  - srun\n  - mpirn", "4: there is no launcher 'mpirn'; there"),
        ("launcher: python\nnodes: 2", "2: 'nodes' cannot be 2 where the launcher is python"),
        ("settings:\n- name: x\n- {name: y, nodes: 2, launcher: python}", "3: 'nodes' cannot"),
        ("axes:\n  nodes: [1, 2]\n  launcher: [srun, python]", "2: 'nodes' cannot be 2 where"),
        ("own_toggles: {wandb: {values: {a: , b: }}}", "1: 'wandb' cannot name a toggle of your"),
        ("own_toggles: {x: {values: {a: , b: }}}", "1: no value of the toggle 'x' changes"),
        ("own_toggles: {x: {values: {a: {arguments: -a}}}}", "1: the toggle 'x' has one value: it"),
        ("own_toggles: {x: {value: 1}}", "1: there is no key 'value'; did you mean 'values'?"),
        ("isolate: {only: [wandb, proxi]}", "1: there is no toggle 'proxi'; did you mean 'proxy'"),
        ("isolate: {confidence: 2}", "1: 'confidence' cannot be '2': it is a number from 0.5"),
        ("just words", "1: it is no mapping of keys"),
        ("- a", "1: it is no mapping of keys"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_the_nearest_right_word(
    text: str, said: str
) -> None:
    assert wrong(text).startswith(said)


def test_a_launcher_at_a_path_is_looked_for_when_its_cell_is_started() -> None:
    assert list_cells(right("launcher: ./nowhere"))[0].launcher == "./nowhere"
    assert (
        len(list_cells(right("command: x\naxes: {ranks: [1, 2], launcher: [srun, ./mine]}"))) == 4
    )
    without = (
        "axes: {nodes: [1, 2], launcher: [srun, python]}\nexclude: [{nodes: 2, launcher: python}]"
    )
    assert len(list_cells(right(without))) == 3


def test_too_many_cells_are_refused_before_any_is_made() -> None:
    values = ", ".join(str(n) for n in range(1, 120))
    assert "that makes 14,161 cells" in wrong(f"axes: {{ranks: [{values}], nodes: [{values}]}}")


def test_the_first_of_several_errors_is_told() -> None:
    assert wrong("title: x\nrank: 2\nlimit: no\nfoo: 1").startswith("2: there is no key 'rank'")


# ---- files ---------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_said_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'recommended'"):
        scenario_file.load_scenario("recomended")
    (tmp_path / "mine.yaml").write_text("ranks: 2")
    with pytest.raises(UsageError, match=r"did you mean '.*/mine.yaml'"):
        scenario_file.load_scenario(str(tmp_path / "min.yaml"))
    with pytest.raises(UsageError) as raised:
        scenario_file.load_scenario(str(tmp_path / "other.yaml"))
    assert "did you mean" not in str(raised.value)


def test_only_a_file_is_read_so_that_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path, kind in ((tmp_path / "pipe.yaml", "pipe"), (tmp_path, "folder"), ("/dev/zero", "a")):
        with pytest.raises(UsageError, match=kind):
            scenario_file.load_scenario(str(path))


def test_bytes_that_are_no_text_are_said_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"ranks: 2\n\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"x\.yaml:2: it is not UTF-8: byte 0xff"):
        scenario_file.load_scenario(str(tmp_path / "x.yaml"))


# ---- anything at all -----------------------------------------------------------------------------

KEYS = sorted(
    {name for part in (Scenario, Setting, Watch, OwnToggle, Isolate) for name in part.model_fields}
    | {"wandb", "ranks", "strategy", "num_workers", "", "~", "a b", "1"}
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from([*KEYS, "off", "torchrun", "startup", "--fast-dev-run 1", "a | b", "--env=1"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


def said_of(does: Callable[[], object]) -> str | None:
    """Return what is said if it is wrong."""
    try:
        does()
    except UsageError as error:
        return str(error)
    return None


def one_clear_answer(text: str) -> None:
    """Check that a text is either understood, to the command of each cell, or told off once."""
    said = said_of(lambda: right(text))
    if said is not None:
        told = re.fullmatch(r"my\.yaml:(\d+): (.+)", said)
        assert told is not None, said
        assert 1 <= int(told[1]) <= len(re.findall("[\n\r\x85\u2028\u2029]", text)) + 2, said
        assert len(told[2]) < 1000
        return
    scenario = right(text)
    around = MatrixContext(
        toggles_of_scenario(scenario), scenario.watch.options(), Path("/x"), Path("/y")
    )
    for cell in list_cells(scenario)[:20]:
        said = said_of(lambda cell=cell: format_launch(make_launch(cell, around, {})))  # type: ignore[misc]
        assert said is None or "launcher" in said


@given(st.text(max_size=300))
def test_any_text_gets_one_clear_answer(text: str) -> None:
    one_clear_answer(text)


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_any_value_at_any_key_gets_one_clear_answer(value: dict[str, Any]) -> None:
    one_clear_answer(yaml.safe_dump(value, allow_unicode=True))


def _mutated(text: str, draw: random.Random) -> str:
    """Return a file of ours with one or more things wrong, as people and broken disks do it."""
    lines = text.splitlines()
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        line = lines[at]
        change = draw.randrange(8)
        if change == 0:
            lines[at] = " " * draw.randint(0, 6) + line.lstrip()
        elif change == 1:
            lines.insert(at, draw.choice(lines))
        elif change == 2:
            del lines[at]
        elif change == 3 and line:
            spot = draw.randrange(len(line))
            lines[at] = line[:spot] + chr(draw.randrange(0x3000)) + line[spot + 1 :]
        elif change == 4:
            value = draw.choice(["[", "{", "'", "~", "[1, 2]", "{a: b}", "1e999", "&a *a", "- -"])
            lines[at] = f"{line.partition(':')[0]}: {value}"
        elif change == 5 and line:
            spot = draw.randrange(len(line))
            lines[at] = line[:spot] + line[spot + 1 :]
        elif change == 6:
            lines[at] = "\t" + line
        else:
            lines[at] = line.replace("name", "nmae").replace("toggles", "togles")
        lines = lines or [""]
    return "\n".join(lines)


@settings(max_examples=examples(400))
@given(st.sampled_from(sorted(OURS)), st.integers(0, 2**32))
def test_a_slightly_wrong_file_gets_one_clear_answer(name: str, seed: int) -> None:
    one_clear_answer(_mutated(OURS[name], random.Random(seed)))


@given(st.binary(max_size=200), st.sampled_from(sorted(OURS)), st.integers(0, 200))
def test_any_bytes_in_a_file_get_one_clear_answer(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, name: str, at: int
) -> None:
    file = tmp_path_factory.mktemp("any") / "my.yaml"
    raw = OURS[name].encode()
    file.write_bytes(raw[:at] + junk + raw[at:])
    said = said_of(lambda: scenario_file.load_scenario(str(file)))
    assert said is None or re.fullmatch(rf"{re.escape(str(file))}:\d+: .+", said), said


def _keys() -> list[tuple[str, int, str]]:
    """Return every key of ours that can be misspelt: file, line and word."""
    found = []
    for name, text in OURS.items():
        for number, line in enumerate(text.splitlines()):
            match = re.match(r"[ -]*([a-z_]{4,}):", line)
            if match and match[1] not in ("NCCL_DEBUG",):
                found.append((name, number, match[1]))
    return found


@pytest.mark.parametrize(("name", "number", "key"), _keys())
def test_a_misspelt_key_is_named_with_its_line_and_the_right_one(
    name: str, number: int, key: str
) -> None:
    lines = OURS[name].splitlines()
    misspelt = key[:2] + key[3:]
    lines[number] = lines[number].replace(f"{key}:", f"{misspelt}:", 1)
    said = wrong("\n".join(lines))
    assert said.startswith(f"{number + 1}: there is no ")
    assert f"'{misspelt}'; did you mean '{key}'?" in said
