"""Read YAML or JSON text as mappings, lists and scalars, and refuse equal keys.

PyYAML silently keeps the last of two equal keys, so a whole section of a config can be lost. Here equal keys
are refused at every level, with their lines. Scalars without quotes are returned as `Plain`: the fields of
the config decide what they are (`config_values.py`).
"""

from __future__ import annotations

from typing import Any

import yaml

from components.config.reading.config_values import Plain

_TAGS = "tag:yaml.org,2002:"
_IMPLICIT = {
    yaml.ScalarNode: f"{_TAGS}str",
    yaml.SequenceNode: f"{_TAGS}seq",
    yaml.MappingNode: f"{_TAGS}map",
}
_MERGE = "<<"


class YamlRefused(ValueError):
    """The text is not YAML or has a key twice; the message names the lines."""


def parse_yaml(text: str) -> Any:
    """Return the value of the document in `text`; None if there is none.

    Raises:
        YamlRefused: a mapping has a key twice, the syntax is wrong, a tag is used, or an alias
            contains itself.
    """
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        return None if root is None else _Reader().value(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise YamlRefused(place + " ".join(part for part in (error.context, error.problem) if part)) from None
    except yaml.YAMLError as error:
        raise YamlRefused(" ".join(str(error).split())) from None
    except RecursionError:
        raise YamlRefused("it is nested too deeply") from None


class _Reader:
    """Reads nodes, each once: aliases of one anchor share a value."""

    def __init__(self) -> None:
        self._read: dict[int, Any] = {}
        self._open: set[int] = set()

    def value(self, node: yaml.Node) -> Any:
        """Return the Python value of a node."""
        if id(node) in self._open:
            raise YamlRefused(f"{_line(node)}: an alias contains itself")
        if id(node) not in self._read:
            if node.tag != _IMPLICIT[type(node)]:
                raise YamlRefused(
                    f"{_line(node)}: the tag {node.tag.replace(_TAGS, '!!')} is not allowed; write the "
                    "value alone"
                )
            self._open.add(id(node))
            self._read[id(node)] = self._build(node)
            self._open.discard(id(node))
        return self._read[id(node)]

    def _build(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item) for item in node.value]
        return Plain(node.value) if getattr(node, "style", None) is None else node.value

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        lines: dict[str, int] = {}
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlRefused(f"line {line}: a key is a list or a mapping; expected a name")
            key = str(key_node.value)
            if key in lines:
                again = f"line {line}: the key {key} is already in line {lines[key]}"
                raise YamlRefused(f"{again}; write it once, with all that belongs to it")
            lines[key] = line
            if key == _MERGE and key_node.style is None:
                merged = self._merged(value_node)
            else:
                own[key] = self.value(value_node)
        return merged | own

    def _merged(self, node: yaml.Node) -> dict[str, Any]:
        """Return the keys that `<<` merges: of a mapping, or of mappings that agree in common keys."""
        values = self.value(node)
        parts = values if isinstance(values, list) else [values]
        if not all(isinstance(part, dict) for part in parts):
            raise YamlRefused(f"{_line(node)}: << needs a mapping, or a list of mappings")
        merged: dict[str, Any] = {}
        for part in parts:
            if twice := [key for key in part if key in merged and merged[key] != part[key]]:
                raise YamlRefused(
                    f"{_line(node)}: << brings in the key {twice[0]} twice, with different values"
                )
            merged |= part
        return merged


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"
