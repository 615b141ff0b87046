"""YAML files with line numbers, so that errors can name the line.

`read_document` returns plain data and a mapping from location (keys and list indices) to line number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from testbed.errors import LabFileError

Location = tuple[str | int, ...]
MAX_ALIASED_VALUES = 20_000
"""Largest number of values that the aliases of a file may add when they are expanded."""


@dataclass(frozen=True, slots=True)
class Document:
    """One file: its data, the line (from 1) on which each key or list item starts, and a hash of its text."""

    path: Path
    data: Mapping[str, Any]
    line_by_location: Mapping[Location, int]
    revision: str

    def find_line(self, location: Location) -> int:
        """Return the line of a location, or of the nearest enclosing location in the file."""
        while location and location not in self.line_by_location:
            location = location[:-1]
        return self.line_by_location.get(location, 1)

    def make_error(self, location: Location, problem: str, hint: str) -> LabFileError:
        """Return the error `file:line: problem; hint`."""
        return LabFileError(f"{self.path}:{self.find_line(location)}: {problem}; {hint}")


def read_document(path: Path) -> Document:
    """Read a YAML mapping. Raises `LabFileError` if the file cannot be read, is not YAML or is not a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        hint = "give the path of a lab file, for example labs/testbed12.yaml"
        raise LabFileError(f"{path}:1: cannot be read ({error.strerror}); {hint}") from None
    except UnicodeDecodeError as error:
        raise LabFileError(f"{path}:1: not UTF-8 text ({error.reason}); save it as UTF-8") from None
    return parse_document(path, text)


def parse_document(path: Path, text: str) -> Document:
    """Parse the text of a file. Raises `LabFileError`, which names `path`, if it is not a YAML mapping."""
    try:
        loader, node = _compose(text)
        if node:
            _check_aliases(path, node)
        line_by_location = dict(_index_lines(path, node, ())) if node else {}
        data = loader.construct_document(node) if node else None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"unacceptable character #x{error.character:04x}"
        raise LabFileError(f"{path}:{line}: not YAML ({problem}); remove it") from None
    except yaml.MarkedYAMLError as error:
        raise _make_yaml_error(path, error) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise LabFileError(f"{path}:1: not YAML ({error}); correct it") from None
    if not isinstance(data, dict):
        raise LabFileError(f"{path}:1: not a mapping of keys to values; begin with 'name: ...'")
    return Document(path, data, line_by_location, sha256(text.encode("utf-8", "replace")).hexdigest()[:16])


def _compose(text: str) -> tuple[yaml.SafeLoader, yaml.Node | None]:
    """Return the loader and the node tree of a text.

    libyaml is ten times as fast as PyYAML's Python loader. The Python loader reads only

    - texts with tabs or question marks, because libyaml misreads some of them
    - texts that may be nested so deeply that libyaml would crash
    - texts that libyaml refuses, because its errors say less
    - all texts, if PyYAML was built without libyaml
    """
    if not _AMBIGUOUS_SYNTAX.search(text) and sum(map(text.count, _NESTING_TOKENS)) < _MAX_NESTING_TOKENS:
        with suppress(AttributeError, yaml.YAMLError, ValueError, RecursionError):
            loader = yaml.CSafeLoader(text)
            return loader, loader.get_single_node()
    loader = yaml.SafeLoader(text)
    return loader, loader.get_single_node()


_AMBIGUOUS_SYNTAX = re.compile(r"[\t?]|[|>][-+\d]*#")
_NESTING_TOKENS = ("[", "{", "- -")
_MAX_NESTING_TOKENS = 5000
"""Limit for libyaml, which recurses on the C stack. This stack holds some ten thousand levels."""
_HINT_BY_PROBLEM = {
    "'\\t'": "indent with spaces, not with tabs",
    "cannot start any token": "put the value in quotes",
    "another document": "remove the line '---': a lab is one document",
    "undefined alias": "put the value in quotes, or define '&' before it is used",
    "a constructor for the tag": "remove the '!' and the word after it",
    "for merging": "write '<<: *name' of a mapping, or leave it out",
    "expected <block end>": "check the indentation and the quotes of this line and the one before",
    "could not find expected ':'": "write 'key: value', with a space after the colon",
    "unexpected end of stream": "close all quotes, brackets and braces",
}


def _make_yaml_error(path: Path, error: yaml.MarkedYAMLError) -> LabFileError:
    is_key = error.context == "while scanning a simple key"  # PyYAML notices this error only on a later line
    mark = error.context_mark if is_key else error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    problem = error.problem or error.context or ""
    hint = next(
        (hint for part, hint in _HINT_BY_PROBLEM.items() if part in problem), "correct the punctuation"
    )
    return LabFileError(f"{path}:{line}: not YAML ({problem}); {hint}")


def _check_aliases(path: Path, root: yaml.Node) -> None:
    """Raise `LabFileError` if an alias contains itself, or if aliases add more than `MAX_ALIASED_VALUES` values.

    Each node is visited once: with aliases, a file of ten lines can stand for billions of values.
    """
    value_count_by_node: dict[int, int] = {}
    ancestors: set[int] = set()

    def count_values(node: yaml.Node) -> int:
        line = node.start_mark.line + 1
        if id(node) in ancestors:
            raise LabFileError(f"{path}:{line}: an alias that contains itself; write the value out")
        if id(node) not in value_count_by_node:
            ancestors.add(id(node))
            value_count_by_node[id(node)] = 1 + sum(map(count_values, _iterate_children(node)))
            ancestors.remove(id(node))
            if value_count_by_node[id(node)] - len(value_count_by_node) > MAX_ALIASED_VALUES:
                problem = f"aliases that stand for more than {MAX_ALIASED_VALUES} values"
                raise LabFileError(f"{path}:{line}: {problem}; write them out")
        return value_count_by_node[id(node)]

    count_values(root)


def _iterate_children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _index_lines(path: Path, node: yaml.Node, location: Location) -> Iterator[tuple[Location, int]]:
    if not location:
        yield location, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in _read_entries(path, node):
            yield (*location, key.value), key.start_mark.line + 1
            yield from _index_lines(path, value, (*location, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*location, index), item.start_mark.line + 1
            yield from _index_lines(path, item, (*location, index))


def _read_entries(path: Path, node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the keys and values of a mapping.

    Raises `LabFileError` for a key that is not a scalar, and for a repeated key, because YAML would drop a value.
    """
    line_by_key: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise LabFileError(f"{path}:{line}: a key that is not a plain word; write 'key: value'")
        if key.value in line_by_key:
            location_text = f"already on line {line_by_key[key.value]}"
            raise LabFileError(f"{path}:{line}: key '{key.value}' appears twice ({location_text}); keep one")
        line_by_key[key.value] = line
    return list(node.value)
