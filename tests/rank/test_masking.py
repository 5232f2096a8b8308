"""What is a secret, and what is not."""

from __future__ import annotations

import pytest
from hangbisect.rank.masking import MASK, is_secret, mask, mask_command, mask_text
from hypothesis import given
from hypothesis import strategies as st


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
        "http-auth",
    ],
)
def test_a_name_tells_a_secret(name: str) -> None:
    assert is_secret(name)
    assert mask(name, "abc") == f"{MASK} (3 characters)"


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "MASTER_PORT", "NCCL_DEBUG", "SLURM_TASKS_PER_NODE", "PATH"]
)
def test_other_names_show_their_values(name: str) -> None:
    assert mask(name, "abc") == "abc"


@pytest.mark.parametrize("flag", ["--max-new-tokens", "--max_tokens", "--num-tokens"])
def test_a_number_of_tokens_is_no_secret(flag: str) -> None:
    assert mask_command([flag, "512", f"{flag}=256"]) == [flag, "512", f"{flag}=256"]
    assert mask_command([flag, "a1b2c3"]) == [flag, MASK]
    assert mask("MAX_TOKENS", "512") == "512"


def test_an_empty_secret_is_seen_to_be_empty() -> None:
    assert mask("HF_TOKEN", "") == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ada:pa55@proxy.corp:3128", f"http://{MASK}@proxy.corp:3128"),
        ("ada:pa55@proxy.corp:3128", f"{MASK}@proxy.corp:3128"),
        ("https://token@github.com/x", f"https://{MASK}@github.com/x"),
        ("https://ada:@host/", f"https://{MASK}@host/"),
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
