"""What is masked of 60 planted secrets and of 200 harmless texts, by ours and by libraries; MiB/s.

python benchmarks/redaction.py                        ours, and each library that is installed here:
                                                      detect-secrets, python-log-redactor
python benchmarks/redaction.py --gitleaks gitleaks.toml    the rules of gitleaks too, as they are
python benchmarks/redaction.py --megabytes 100        how fast ours is on so many MiB of events

A secret counts as masked if, with all that was found taken out, none of its lines is left. The
lists are those of the tests; each text is looked at by itself, for several seeds.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import re
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hangbisect.base.secret_rules.values import entropy
from hangbisect.base.words import format_bytes, format_rate
from hangbisect.report.redaction import Redactor
from planted import lookalikes, planted

Mask = Callable[[str], str]
SEEDS = range(1, 6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--gitleaks", type=Path, metavar="TOML", help="its config/gitleaks.toml")
    parser.add_argument("--megabytes", type=int, default=20, help="MiB of events (20)")
    args = parser.parse_args()
    print(f"{'':34} {'secrets masked':>15} {'harmless masked':>16}")
    row("ours", lambda text: Redactor().text(text))
    for name, maker in (
        ("detect-secrets", detect_secrets),
        ("bc-detect-secrets", detect_secrets),
        ("python-log-redactor", log_redactor),
    ):
        with suppress(ImportError):
            version = importlib.metadata.version(name)
            row(f"{name} {version}", maker())
    if args.gitleaks:
        row("gitleaks' rules", gitleaks(args.gitleaks))
    speed(args.megabytes)


def row(name: str, mask: Mask) -> None:
    """Print how many of the secrets and of the harmless texts `mask` masks."""
    secrets = [one for seed in SEEDS for one in planted(seed)]
    harmless = [text for seed in SEEDS for text in lookalikes(seed)]
    left = [one for one in secrets if is_left(one.secret, mask(one.text))]
    wrong = sum(mask(text) != text for text in harmless)
    found, all_secrets = (len(secrets) - len(left)) / len(SEEDS), len(secrets) // len(SEEDS)
    print(
        f"{name:34} {found:>8.1f} of {all_secrets:>3} {wrong / len(SEEDS):>9.1f} of "
        f"{len(harmless) // len(SEEDS):>3}"
    )
    kinds = Counter(one.kind for one in left)
    if kinds:
        told = ", ".join(f"{kind} {n / len(SEEDS):.1f}" for kind, n in kinds.most_common(8))
        print(f"    not masked: {told}")


def is_left(secret: str, text: str) -> bool:
    lines = secret.replace("\\n", "\n").split("\n")
    return any(line in text for line in lines if "-----" not in line)


def detect_secrets() -> Mask:
    """Return what masks by the default plugins and filters of detect-secrets, as it looks through a
    file: asked for a line (`scan_line`), it takes every word of some entropy for a secret.
    """
    scan_file = importlib.import_module("detect_secrets.core.scan").scan_file
    default_settings = importlib.import_module("detect_secrets.settings").default_settings

    def mask(text: str) -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".log") as file, default_settings():
            file.write(text)
            file.flush()
            for found in scan_file(file.name):
                text = text.replace(found.secret_value or "\0", "***")
        return text

    return mask


def log_redactor() -> Mask:
    """Return what masks by all patterns of python-log-redactor."""
    redact = importlib.import_module("log_redactor").redact

    def mask(text: str) -> str:
        masked: str = redact(text)
        return masked

    return mask


def gitleaks(file: Path) -> Mask:
    """Return what masks by the rules of gitleaks: keywords, expression, entropy, allowed words."""
    rules = list(_rules(tomllib.loads(file.read_text(encoding="utf-8"))))
    print(f"    {len(rules)} rules of gitleaks could be read as Python's")

    def mask(text: str) -> str:
        lowered, masked = text.lower(), text
        for keywords, pattern, least, group in rules:
            if keywords and not any(word in lowered for word in keywords):
                continue
            for found in pattern.finditer(text):
                secret = found[group or (1 if pattern.groups else 0)] or found[0]
                if entropy(secret) >= least:
                    masked = masked.replace(secret, "***")
        return masked

    return mask


def _rules(config: dict[str, Any]) -> Iterator[tuple[list[str], re.Pattern[str], float, int]]:
    for rule in config["rules"]:
        if "regex" not in rule or "path" in rule:
            continue
        with suppress(re.error):
            pattern = re.compile(_pythons(rule["regex"]))
            least = float(rule.get("entropy", 0.0))
            yield rule.get("keywords", []), pattern, least, int(rule.get("secretGroup", 0))


def _pythons(expression: str) -> str:
    """Return an expression of Go as one of Python: flags in its middle hold to the group's end."""
    expression = expression.replace(r"\z", r"\Z").replace("[[:alnum:]]", "[A-Za-z0-9]")
    while (at := expression.find("(?i)", 1)) > 0:
        depth, end, inside = 0, at + 4, False
        while end < len(expression):
            letter = expression[end]
            if letter == "\\":
                end += 1
            elif inside or letter == "[":
                inside = letter != "]"
            elif letter in "()":
                depth += 1 if letter == "(" else -1
                if depth < 0:
                    break
            end += 1
        expression = f"{expression[:at]}(?i:{expression[at + 4 : end]}){expression[end:]}"
    return expression


def speed(megabytes: int) -> None:
    """Print MiB/s of ours on events as ranks send them: no two alike, a secret in one of 50."""
    secrets = [one.text for one in planted()]
    harmless = list(lookalikes())

    def event(number: int) -> dict[str, Any]:
        words = harmless[number % len(harmless)], f"step {number} took {number % 997} ms"
        told = secrets[number % len(secrets)] if number % 50 == 0 else words[0]
        place = {"rank": number % 8, "host": f"n{number % 64:02}", "call": "torch.distributed"}
        return {"t": "line", "at": number / 7, **place, "text": f"{told}; {words[1]}"}

    lines: list[str] = []
    size = 0
    while size < megabytes << 20:
        lines.append(json.dumps(event(len(lines))))
        size += len(lines[-1]) + 1
    for anonymous in (False, True):
        redactor = Redactor(anonymous)
        began = time.process_time()
        for line in lines:
            json.dumps(redactor.json(json.loads(line)))
        took = time.process_time() - began
        who = ", anonymous" if anonymous else ""
        print(
            f"events{who}: {format_rate(size, took)} of JSON ({format_bytes(size)}, {took:.0f} s)"
        )
    for name, text in (("words", "all is well; " * 80_660), ("one letter", "a" * (1 << 20))):
        began = time.process_time()
        Redactor(anonymous=True).text(text)
        print(f"a line of 1 MiB ({name}): {time.process_time() - began:.2f} s")


if __name__ == "__main__":
    main()
