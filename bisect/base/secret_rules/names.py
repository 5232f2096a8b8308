"""What the name of a variable, flag or key says of its value."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


class Says(Enum):
    """What a name says of its value."""

    NOTHING = "nothing"
    PERHAPS = "perhaps"  # a secret if it looks like one: `key`, `token`
    SECRET = "a secret"  # whatever it looks like: `password`


# Words of a name, in lower case: apiKey and API-KEY are api and key.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRETS = frozenset(
    (
        *("password", "passwd", "passphrase", "passwords", "pass", "secret", "secrets", "jwt"),
        *("credential", "credentials", "cookie", "cookies", "apikey", "apikeys", "bearer"),
        *("authtoken", "accesstoken", "secretkey", "privatekey", "accesskey", "authorization"),
        *("signature", "sharedaccesskey", "accountkey", "sessionid", "csrftoken", "netrc", "pwd"),
        *("pw", "userpwd", "dbpass", "dbpassword", "pgpassword", "sshpass"),
    )
)
# Those after which more may come: secret_value, password2.
_SECRETS_ANYWHERE = frozenset(
    ("password", "passwd", "passphrase", "secret", "credential", "credentials", "apikey")
)
_BEFORE_KEY = frozenset(
    (
        *("api", "access", "secret", "private", "auth", "account", "encryption", "signing"),
        *("storage", "ssh", "deploy", "license", "service", "session", "master", "wandb", "hf"),
        *("openai", "anthropic", "azure", "stripe", "subscription", "app", "application"),
    )
)
_BEFORE_TOKEN = frozenset(
    (
        *("api", "access", "auth", "refresh", "id", "hf", "hub", "huggingface", "hugging", "face"),
        *("github", "gitlab", "slack", "bot", "bearer", "session", "security", "secret", "npm"),
        *("pypi", "vault", "oauth", "personal", "csrf", "xsrf", "login", "user", "wandb", "job"),
        *("gh", "gl", "upload", "deploy", "neptune", "comet", "service", "account", "identity"),
    )
)
# A key of a dict, a store, a cache or a table.
_OF_A_MAPPING = frozenset(
    (
        *("cache", "store", "sort", "primary", "foreign", "public", "dict", "group", "state"),
        *("missing", "unexpected", "index"),
    )
)
_PERHAPS = frozenset(
    ("key", "keys", "token", "tokens", "auth", "sig", "session", "pin", "salt", "nonce", "sas")
)
# Words behind which a name is no longer that of the secret itself.
_ABOUT_IT = frozenset(
    (
        *("path", "file", "dir", "name", "url", "uri", "id", "ids", "len", "length", "size"),
        *(
            "count",
            "type",
            "prefix",
            "timeout",
            "index",
            "mask",
            "states",
            "sock",
            "cache",
            "store",
        ),
        *("required", "mode", "expires", "expiry", "ttl", "helper", "manager", "provider", "class"),
        *("parallelism", "limit", "embedding", "embeddings", "per", "policy", "method", "version"),
        *("host", "port", "endpoint", "server", "algorithm", "field", "fields", "column"),
    )
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_KINDS = (
    (("wandb",), "W&B key"),
    (("hf",), "Hugging Face token"),
    (("huggingface",), "Hugging Face token"),
    (("hugging", "face"), "Hugging Face token"),
    (("anthropic",), "Anthropic key"),
    (("openai",), "OpenAI key"),
    (("aws", "secret", "key"), "AWS secret key"),
    (("aws", "session"), "AWS session token"),
    (("github",), "GitHub token"),
    (("gitlab",), "GitLab token"),
    (("slack",), "Slack token"),
    (("azure",), "Azure secret"),
    (("accountkey",), "Azure secret"),
    (("sharedaccesskey",), "Azure secret"),
    (("account", "key"), "Azure secret"),
    (("private", "key"), "private key"),
    (("api", "key"), "API key"),
    (("apikey",), "API key"),
    (("signature",), "signature"),
    (("sig",), "signature"),
    (("credential",), "credential"),
    (("authorization",), "authorization"),
    (("cookie",), "cookie"),
    (("pass",), "password"),
    (("pw",), "password"),
    (("pwd",), "password"),
    (("token",), "token"),
    (("key",), "key"),
)
# Of the words above those that may stand anywhere in a word of the name.
_ANYWHERE = ("pass", "token", "cookie", "key", "credential")


@lru_cache(4096)
def says(name: str) -> Says:
    """Return what `name` says of its value."""
    words = _split_words(name)
    if not words or words[-1] in _ABOUT_IT:
        return Says.NOTHING
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if name in ("PWD", "OLDPWD") or (last in ("key", "keys") and before in _OF_A_MAPPING):
        return Says.NOTHING
    if last in _SECRETS or any(word in _SECRETS_ANYWHERE for word in words):
        return Says.SECRET
    if last in ("key", "keys") and before in _BEFORE_KEY:
        return Says.SECRET
    if last in ("token", "tokens") and before in _BEFORE_TOKEN:
        return Says.SECRET
    # `--token X` is one to log in with; of a local variable `token` one cannot say.
    if last == "token" and name.startswith("-"):
        return Says.SECRET
    # Variables are named with more care than locals: SERVICE_KEY, but not SORT_KEY's `key`.
    if last in ("key", "token", "auth") and before and _VARIABLE.fullmatch(name):
        return Says.SECRET
    if last in _PERHAPS or last.endswith(("password", "token", "secret", "apikey")):
        return Says.PERHAPS
    return Says.NOTHING


@lru_cache(4096)
def kind_by_name(name: str) -> str:
    """Return the kind of the secret in a variable of this name, "secret" where it is not told."""
    words = _split_words(name)
    for needed, kind in _KINDS:
        if all(any(w == n or (n in _ANYWHERE and n in w) for w in words) for n in needed):
            return kind
    return "secret"


def _split_words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name[-120:])]
