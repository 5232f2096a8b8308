"""What a redactor promises: the same mark for the same secret, valid JSON, nothing twice."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hangbisect.report.redaction import Redactor
from hypothesis import given
from hypothesis import strategies as st

KEY = "hf_" + "aB3" * 11
COMMIT = "0123456789" * 4
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
# Pieces that mean something to a redactor, in any order, with anything between.
PIECES = st.lists(
    st.sampled_from(
        [
            *(KEY, COMMIT, "password=", '"token": "', "api_key: ", "'", '"', "\\", "\n", " ", ","),
            *("--api-key ", "https://ada:", "@host/", "?sig=", "Bearer ", "Cookie: a=", "[key 1]"),
            *("[W&B key 2]", "***", "...", "-----BEGIN RSA " + "PRIVATE KEY-----", "wandb login "),
            *(
                "machine x login y password ",
                "value:",
                "\n    value: ",
                "AKIA" + "Z9" * 8,
                "=",
                ":",
            ),
            *("10.1.2.3", "/home/ada/", "xY7" * 9, "correct-horse-7", "eyJ", ".", "\x1b[31m", "İ"),
        ]
    )
    | TEXTS,
    max_size=14,
).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | PIECES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["password", "key", "name", "value", "a b"]) | TEXTS, inner
        )
    ),
    max_leaves=12,
)


def test_the_same_secret_has_the_same_mark_wherever_it_stands() -> None:
    redactor = Redactor()
    assert redactor.value("HF_TOKEN", KEY) == "[Hugging Face token 1]"
    assert redactor.text(f"GET /?token={KEY}") == "GET /?token=[Hugging Face token 1]"
    assert redactor.json({"x": [f"-> {KEY}"]}) == {"x": ["-> [Hugging Face token 1]"]}
    assert redactor.command(["--hub-token", KEY]) == ["--hub-token", "[Hugging Face token 1]"]
    assert redactor.value("HF_TOKEN", KEY + "x") == "[Hugging Face token 2]"
    assert redactor.counts == {"Hugging Face token": 5}
    assert redactor.secrets == 2


def test_ranks_that_differ_in_a_secret_still_differ() -> None:
    ranks = {
        "0": {"API_KEY": "one1one1"},
        "1": {"API_KEY": "two2two2"},
        "2": {"API_KEY": "one1one1"},
    }
    shown = Redactor().json(ranks)
    assert shown["0"] == shown["2"] != shown["1"]


def test_a_value_that_is_known_by_its_name_is_found_everywhere_else() -> None:
    redactor = Redactor()
    redactor.learn({"HF_TOKEN": "correct-horse-7"})
    assert redactor.counts == {}
    for text in ("said correct-horse-7.", "/tmp/correct-horse-7/x", "https://h/correct-horse-7"):
        assert "correct" not in redactor.text(text)


def test_it_is_found_in_the_form_that_a_url_gives_it() -> None:
    redactor = Redactor()
    redactor.learn("password='p@ss/w0rd'")
    assert redactor.text("amqp p%40ss%2Fw0rd") == "amqp [password 1]"


def test_a_value_that_was_cut_short_is_masked_as_well() -> None:
    redactor = Redactor()
    redactor.learn({"MY_SECRET": "correct-horse-7-battery"})
    assert redactor.text('said "correct-horse-..." to it') == 'said "[secret 2]..." to it'


def test_a_common_word_that_is_a_password_is_not_taken_out_of_every_text() -> None:
    redactor = Redactor()
    assert redactor.text('password="training"') == 'password="[password 1]"'
    assert redactor.text("training starts") == "training starts"


def test_what_stands_before_forty_digits_decides() -> None:
    redactor = Redactor()
    for text in (f"commit {COMMIT}", f"snapshots/{COMMIT}/x", f"revision='{COMMIT}'", COMMIT):
        assert redactor.text(text) == text
    for text in (f"WANDB_API_KEY={COMMIT}", f"wandb login {COMMIT}", f"key {COMMIT}"):
        assert COMMIT not in Redactor().text(text)
    assert redactor.command(["git", "checkout", COMMIT])[-1] == COMMIT
    assert redactor.command(["wandb", "login", "--relogin", COMMIT])[-1] == "[W&B key 1]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ada:pa55@hub/x", "https://ada:[URL password 1]@hub/x"),
        ("https://token@hub/x", "https://[URL password 1]@hub/x"),
        ("ssh://git@hub/x", "ssh://git@hub/x"),
        ("--password swordfish --lr 1", "--password [password 1] --lr 1"),
        ('["--password", "sword fish"]', '["--password", "[password 1]"]'),
        ('{"a": "{\\"token\\": \\"x9y8z7w6v5\\"}"}', '{"a": "{\\"token\\": \\"[token 1]\\"}"}'),
        ("password: required", "password: required"),
        ("Password: hunter2", "Password: [password 1]"),
        ("api_key:\n    value: abc9", "api_key:\n    value: [API key 1]"),
        ("Authorization: Bearer abcDEF123456", "Authorization: Bearer [authorization 1]"),
        ("api_key=\x1b[32mabc99\x1b[0m", "api_key=[API key 1]"),
        ("WANDB_API_KEY=*** (40 characters)", "WANDB_API_KEY=*** (40 characters)"),
        ("sshpass -p hunter2 ssh x", "sshpass -p [password 1] ssh x"),
        ("curl -u ada:hunter2 x", "curl -u ada:[password 1] x"),
        ("docker run -u 1000:1000 x", "docker run -u 1000:1000 x"),
        ("secret=SecretStr('hunter2')", "secret=SecretStr('[secret 1]')"),
        ("password is 'hunter2'", "password is '[password 1]'"),
        ("Pwd=p4ss;Server=x", "Pwd=[password 1];Server=x"),
        ("PWD=/home/x", "PWD=/home/x"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert Redactor().text(text) == shown


def test_a_private_key_is_masked_whole_and_in_halves() -> None:
    lines = "\n".join(["Ab9+" * 16] * 6)
    begin, end = (f"-----{word} RSA " + "PRIVATE KEY-----" for word in ("BEGIN", "END"))
    for text in (f"{begin}\n{lines}\n{end}", f"{begin}\n{lines}", f"{lines}\n{end}"):
        for form in (text, text.replace("\n", "\\n")):
            assert Redactor().text(f"key:\n{form}") in ("key:\n[private key 1]",)


def test_a_debuggers_quotes_stay_around_a_mark() -> None:
    assert Redactor().value("api_key", '"abc99"') == '"[API key 1]"'
    assert Redactor().value("password", "None") == "None"


def test_pairs_and_entries_of_name_and_value_are_read_as_such() -> None:
    redactor = Redactor()
    shown = redactor.json([["api_key", "abc99"], {"name": "DB_PASSWORD", "value": "x1"}])
    assert shown == [["api_key", "[API key 1]"], {"name": "DB_PASSWORD", "value": "[password 1]"}]


def test_what_stands_below_a_secret_name_is_secret() -> None:
    shown = Redactor().json({"passwords": {"db": "hunter-2"}, "api_keys": ["aaa1bbb2", "ccc3ddd4"]})
    assert shown == {
        "passwords": {"db": "[password 1]"},
        "api_keys": ["[API key 1]", "[API key 2]"],
    }


def test_keys_that_become_the_same_keep_both_values() -> None:
    shown = Redactor().json({f"x {KEY}": 1, "x [Hugging Face token 1]": 2})
    assert sorted(shown.values()) == [1, 2]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "_.._etc_passwd"),
        ("<script>", "_script_"),
        ("a\n\x1b[31mb", "a_b"),
        ("", "_"),
        ("..", "_"),
        (".hidden", "hidden"),
        (f"core-{KEY}.txt", "core-[Hugging Face token 1].txt"),
    ],
)
def test_a_name_for_a_file_is_harmless(name: str, safe: str) -> None:
    assert Redactor().name(name) == safe


def test_a_name_is_never_too_long_for_a_file_system() -> None:
    assert len(Redactor().name("x" * 5000)) <= 120


@given(PIECES, st.booleans())
def test_what_is_redacted_is_not_redacted_again(text: str, anonymous: bool) -> None:
    redactor = Redactor(anonymous)
    redactor.learn(text)
    once = redactor.text(text)
    assert redactor.text(once) == once


@given(JSON, st.booleans())
def test_json_stays_json_of_the_same_shape(value: Any, anonymous: bool) -> None:
    shown = Redactor(anonymous).json(value)
    assert shape(json.loads(json.dumps(shown))) == shape(value)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((shape(item) for item in value.values()), key=repr)
    return [shape(item) for item in value] if isinstance(value, list) else None


@given(TEXTS.filter(lambda text: re.search(r"\w", text) is not None), PIECES)
def test_a_known_secret_is_in_no_text(noise: str, text: str) -> None:
    redactor = Redactor()
    secret = "Zq8-Kx2-Vw5"
    redactor.learn({"password": secret})
    assert secret not in redactor.text(noise + secret + text)
    assert secret not in redactor.text(text + secret + noise)
