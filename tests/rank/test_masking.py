"""What is a secret, and what is not."""

from __future__ import annotations

import shlex
from unittest import mock

import pytest
from hangbisect.base import masking
from hangbisect.base.masking import (
    MASK,
    mask,
    mask_command,
    mask_ends,
    mask_lines,
    mask_text,
    mask_values,
)
from hangbisect.base.secret_rules.names import Says, says
from hypothesis import given
from hypothesis import strategies as st
from planted import lookalikes, planted

from ..programs import run_program


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY",
        "HF_TOKEN",
        "SLURM_JWT",
        "AWS_SECRET_ACCESS_KEY",
        "MY_PASSWORD",
        "DB_PASS",
        "WANDB_APIKEY",
        "HTTP_AUTH",
    ],
)
def test_a_name_tells_a_secret(name: str) -> None:
    assert says(name) is Says.SECRET
    assert mask(name, "abc") == f"{MASK} (3 characters)"


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "MASTER_PORT", "NCCL_DEBUG", "SLURM_TASKS_PER_NODE", "PATH"]
)
def test_other_names_show_their_values(name: str) -> None:
    assert mask(name, "abc") == "abc"


@pytest.mark.parametrize("flag", ["--max-new-tokens", "--max_tokens", "--num-tokens"])
def test_a_number_of_tokens_is_no_secret(flag: str) -> None:
    assert mask_command([flag, "512", f"{flag}=256"]) == [flag, "512", f"{flag}=256"]
    assert mask_command([flag, "kQpZ8wLrT2aY"]) == [flag, MASK]
    assert mask("MAX_TOKENS", "512") == "512"


def test_an_empty_secret_is_seen_to_be_empty() -> None:
    assert mask("HF_TOKEN", "") == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ada:pa55@proxy.corp:3128", f"http://ada:{MASK}@proxy.corp:3128"),
        ("ada:pa55@proxy.corp:3128", f"ada:{MASK}@proxy.corp:3128"),
        ("https://token@github.com/x", f"https://{MASK}@github.com/x"),
        ("https://u:p@ss@host/x", f"https://u:{MASK}@host/x"),
        ("u:p@ss@proxy.corp:3128", f"u:{MASK}@proxy.corp:3128"),
        ("Authorization: Bearer abcDEF123456xyz", f"Authorization: Bearer {MASK}"),
        (
            "https://a.windows.net/b?sv=2&sig=aB3%2FdE7gH9",
            f"https://a.windows.net/b?sv=2&sig={MASK}",
        ),
        ('{"api_key": "abc-12345"}', f'{{"api_key": "{MASK}"}}'),
        ("ValueError: password='swordfish' is wrong", f"ValueError: password='{MASK}' is wrong"),
        ("https://host/x?api_key=abc&b=2", f"https://host/x?api_key={MASK}&b=2"),
        (f"Bearer hf_{'a' * 34}", f"Bearer {MASK}"),
        ("key " + "0123456789" * 4, f"key {MASK}"),
        ("commit " + "0123456789" * 4, "commit " + "0123456789" * 4),
        ("/hub/snapshots/" + "0123456789" * 4 + "/x", "/hub/snapshots/" + "0123456789" * 4 + "/x"),
        ("wandb login " + "0123456789" * 4, f"wandb login {MASK}"),
        ("https://api.wandb.ai:443/path", "https://api.wandb.ai:443/path"),
        ("127.0.0.1:18080", "127.0.0.1:18080"),
        ("ada@example.org", "ada@example.org"),
    ],
)
def test_secrets_in_a_text_are_hidden_and_the_rest_is_not(text: str, shown: str) -> None:
    assert mask_text(text) == shown


@given(st.text(st.characters(categories=["L", "N"]), min_size=1))
def test_a_password_in_a_url_is_never_shown(password: str) -> None:
    secret = f"S{password}S"
    assert secret not in mask("https_proxy", f"http://user:{secret}@proxy:3128/")


@given(st.text())
def test_any_text_can_be_masked(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


def test_of_a_shells_command_only_the_secret_is_hidden() -> None:
    words = ["bash", "-c", "KEY=x API_KEY=abc-12345 python t.py --token s3cr3t-w0rd -n 2"]
    (*_, script) = mask_command(words)
    assert script == f"KEY=x API_KEY={MASK} python t.py --token {MASK} -n 2"


def test_json_in_an_argument_and_in_a_variable_is_looked_into() -> None:
    value = '{"api_key": "abc-12345", "entity": "us"}'
    shown = f'{{"api_key": "{MASK}", "entity": "us"}}'
    assert mask_command(["train.py", f"--settings={value}"]) == ["train.py", f"--settings={shown}"]
    assert mask("WANDB_SETTINGS", value) == shown


def test_a_key_of_many_lines_is_hidden_whole() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANB\nkiG9w0BAQEFA\n-----END PRIVATE KEY-----"
    assert mask_lines(f"a\n{key}\nb") == f"a\n{MASK}\nb"
    assert mask_values({"said": [key, 3, None]}) == {"said": [MASK, 3, None]}


BEGIN, END = (f"-----{word} RSA " + "PRIVATE KEY-----" for word in ("BEGIN", "END"))
LINES = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDc", "kiG9w0BAQEFAASCBKcwggSj", "aA=="]


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (["a b", BEGIN, *LINES, END, "waits"], ["a b", MASK, MASK, MASK, MASK, MASK, "waits"]),
        ([BEGIN, "Proc-Type: 4,ENCRYPTED", "", LINES[0], END], [MASK, MASK, "", MASK, MASK]),
        # Cut off at its end, or at its beginning.
        (["rank 0", BEGIN, LINES[0], LINES[1]], ["rank 0", MASK, MASK, MASK]),
        (["step 4", *LINES, END, "runs"], ["step 4", MASK, MASK, MASK, MASK, "runs"]),
        # With what a launcher puts in front of each line.
        (
            [f"[rank0]: {line}" for line in (BEGIN, *LINES[:2], END)],
            [f"[rank0]: {MASK}", MASK, MASK, f"[rank0]: {MASK}"],
        ),
    ],
)
def test_a_key_of_many_lines_is_hidden_where_each_is_a_text(
    told: list[str], shown: list[str]
) -> None:
    assert mask_values({"said": told, "n": 3}) == {"said": shown, "n": 3}
    assert not any(line in str(mask_values([told])) for line in LINES[:2])


@pytest.mark.parametrize(
    "told",
    [
        [BEGIN, "rank", "0", "waits in all_reduce"],
        [BEGIN, "no such file", LINES[0]],
        ["torch/distributed/distributed_c10d.py", "all_reduce", END],
        ["PRIVATE KEY", "main", "step"],
    ],
)
def test_other_texts_beside_the_mark_of_a_key_stay(told: list[str]) -> None:
    assert [one for one in mask_values(told) if one != MASK] == [
        one for one in told if one not in (BEGIN, END)
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_what_the_reports_mask_is_masked_where_it_enters(seed: int) -> None:
    for one in planted(seed):
        lines = one.secret.replace("\\n", "\n").split("\n")
        ways = [mask_lines(one.text)]
        if one.place == "argv":
            ways.append(str(mask_command(shlex.split(one.text))))
        if one.place == "environment":
            name, _, value = one.text.partition("=")
            ways.append(mask(name, value))
        left = [line for line in lines if "-----" not in line and any(line in way for way in ways)]
        assert left == [], one
    harmless = [text for text in lookalikes(seed) if mask_lines(text) != text]
    assert len(harmless) <= 2, harmless


@given(st.integers(0, 300), st.integers(40, 200))
def test_of_a_text_of_any_length_the_ends_are_shown_without_secrets(at: int, most: int) -> None:
    secret = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
    text = "x " * at + secret + " y" * 400
    shown = mask_ends(text, most)
    assert secret[-16:] not in shown
    assert len(shown) < most + 80
    assert shown.endswith(" y")


_PIECES = (
    *("key", "token", "password", "authorization", "cookie", "sig", "login", "machine", "bearer"),
    *("-", "--", "_", "/", "?", "&", ",", "#", "(", "]", "\\", ".", "|", "<"),
    *("abcDEF123456789xyz", "hf_abcdefghijklmnopqrstuvwxyz1234567890", "0123456789abcdef" * 2),
)


@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=4), max_size=8).map("".join))
def test_a_word_holds_no_more_than_its_shape_tells(text: str) -> None:
    if masking._is_word(text.lower()):
        with mock.patch.object(masking, "_is_word", return_value=False):
            expected = masking._masked(text)
        assert masking._masked(text) == expected


def test_what_is_slow_to_load_waits_for_a_name_with_a_value() -> None:
    program = (
        "import sys\n"
        "from hangbisect.base import masking\n"
        "masking.mask('TORCHELASTIC_SIGNALS_TO_HANDLE', 'SIGTERM,SIGINT')\n"
        "masking.mask_values({'tokenizer': ['signals', 'XDG_SESSION_ID']})\n"
        "print(*sorted(name for name in sys.modules if '.secret_rules.' in name))\n"
    )
    ran = run_program(program)
    loaded = {name.rpartition(".")[2] for name in ran.stdout.split()}
    assert loaded == {"names", "shapes"}
