"""The version: one place, read by pyproject.toml too, so that a bare checkout knows it."""

VERSION = "0.1.0"
