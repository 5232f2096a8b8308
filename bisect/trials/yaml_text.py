"""YAML text as plain values and the line of each: nothing in it is executed, or expanded.

Every scalar stays the text that was written (`off` is "off", `010` is "010"; nothing and `~` are
None), so that who reads it says what a value means. Tags are refused, and what would take for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ..base.lazy_dataclass import dataclass

KeyPath = tuple[str | int, ...]

DEEPEST = 20  # of what is nested; ours are four deep
MOST_VALUES = 20_000  # aliases, which stand for all that they name, are counted each time
LARGEST = 256 * 1024  # characters
_NOTHING = ("", "~", "null")


class UnreadableYaml(Exception):
    """The text is no YAML, or none that is read here. `line` counts from 1."""

    def __init__(self, line: int, fact: str) -> None:
        super().__init__(fact)
        self.line = line
        self.fact = fact


@dataclass(frozen=True)
class Document:
    """What a text says. `keys` and `values`: the line where one begins, by the way to it."""

    value: Any
    keys: Mapping[KeyPath, int]
    values: Mapping[KeyPath, int]

    def line(self, path: KeyPath, *, of_key: bool = False) -> int:
        """Return the line of what is at `path`, or of the nearest thing around it."""
        while path:
            for lines in (self.keys, self.values) if of_key else (self.values, self.keys):
                if path in lines:
                    return lines[path]
            path = path[:-1]
        return self.values.get((), 1)


def read_yaml(text: str) -> Document:
    """Return what `text` says. Raises UnreadableYaml."""
    if len(text) > LARGEST:
        raise UnreadableYaml(1, f"it has {len(text):,} characters; at most {LARGEST:,} are read")
    try:
        return _ValueReader().document(_parse_root(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        last = text.rstrip().count("\n") + 1  # what has no end is missed only after it
        line = min(mark.line + 1, last) if mark else 1
        raise UnreadableYaml(line, f"it is no YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{error.character:04X}"
        raise UnreadableYaml(line, f"it is no YAML: it holds the character {character}") from None


def _parse_root(text: str) -> Node:
    """Return the root of the one document in `text`."""
    loader = _Composer(text)
    try:
        found = loader.get_single_node()
    except (ValueError, OverflowError) as error:  # "%YAML 99..9": a number that Python refuses
        raise UnreadableYaml(loader.line + 1, f"it is no YAML: {error}") from None
    finally:
        loader.dispose()
    if found is None:
        raise UnreadableYaml(1, "it is empty")
    return found


class _Composer(yaml.SafeLoader):
    """Makes nodes, which are text with lines, and stops where they are nested too deep."""

    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadableYaml(self.line + 1, f"it is nested more than {DEEPEST} deep")
        node: Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def resolve(self, kind: type[Node], value: str | None, implicit: Any) -> str:
        """Leave every value as text; the library's own rules make `off` False and `1:30` 90."""
        return self.DEFAULT_SCALAR_TAG if kind is ScalarNode else "ours"


class _ValueReader:
    """From nodes to values."""

    def __init__(self) -> None:
        self.keys: dict[KeyPath, int] = {}
        self.values: dict[KeyPath, int] = {}
        self.read = 0

    def document(self, root: Node) -> Document:
        value = self._value(root, ())
        return Document(value, self.keys, self.values)

    def _value(self, node: Node, path: KeyPath) -> Any:
        line = node.start_mark.line + 1
        self.values[path] = line
        self.read += 1
        if self.read > MOST_VALUES:
            raise UnreadableYaml(line, f"it has more than {MOST_VALUES:,} values, aliases counted")
        if len(path) > DEEPEST:  # an alias that stands inside what it names
            raise UnreadableYaml(line, f"it is nested more than {DEEPEST} deep")
        if node.tag not in ("ours", yaml.SafeLoader.DEFAULT_SCALAR_TAG):
            raise UnreadableYaml(line, f"it has the tag {node.tag!r}; tags are not read")
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self._value(one, (*path, i)) for i, one in enumerate(node.value)]
        return self._text(node, line) if isinstance(node, ScalarNode) else None

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._text(key_node, line) if isinstance(key_node, ScalarNode) else None
            if key is None:
                raise UnreadableYaml(
                    line, "a key is a list or a mapping, or is missing; it is a word"
                )
            if key in found:
                first = self.keys[*path, key]
                raise UnreadableYaml(line, f"the key {key!r} is there twice, first in line {first}")
            self.keys[*path, key] = line
            found[key] = self._value(value_node, (*path, key))
        return found

    def _text(self, node: ScalarNode, line: int) -> str | None:
        text: str = node.value
        if node.style is None and text.lower() in _NOTHING:
            return None
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
            raise UnreadableYaml(line, "a text holds a character that no argument can hold")
        return text
