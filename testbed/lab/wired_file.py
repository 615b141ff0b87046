"""Edits of a lab file that set the fibres of its NICs and keep comments, order and all other keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from lightbed.output_file import check_output, write_output
from testbed.errors import LabFileError

_WIRING_KEYS = ("transmit", "receive", "unused")


@dataclass(frozen=True, slots=True)
class NicWiring:
    """Keys of one NIC: the ports of its fibres, and why it is unused. None leaves a key out."""

    transmit: str | None = None
    receive: str | None = None
    unused: str | None = None


def write_wired_text(text: str, wiring_by_nic: Mapping[tuple[str, str], NicWiring]) -> str:
    r"""Return the text of a lab file with the keys of `wiring_by_nic`, by host and NIC, in place of its own keys.

    >>> print(
    ...     write_wired_text(
    ...         "hosts:\n- name: a\n  nics: [{name: n}]  # rack 1\n", {("a", "n"): NicWiring("s:1", "s:9")}
    ...     )
    ... )
    hosts:
    - name: a
      nics: [{name: n, transmit: 's:1', receive: 's:9'}]  # rack 1
    <BLANKLINE>
    """
    edits = [
        edit
        for nic_label, node in _find_nic_nodes(text)
        if nic_label in wiring_by_nic
        for edit in _make_edits(text, node, wiring_by_nic[nic_label])
    ]
    for start_offset, end_offset, new_text in sorted(edits, reverse=True):
        text = text[:start_offset] + new_text + text[end_offset:]
    return text


def write_new_file(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file, and create its folders. Raises as `check_new_file`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    check_new_file(path, replace=replace)
    write_output(path, text)


def check_new_file(path: Path, *, replace: bool = False) -> None:
    """Raise `LabFileError` if a file exists and `replace` is false, `OSError` if it cannot be written."""
    if path.is_file() and not replace:
        raise make_exists_error(path)
    if path.parent.exists():  # otherwise the folder is created
        check_output(path)


def make_exists_error(path: Path) -> LabFileError:
    """Return the error for a file that exists and must not be overwritten."""
    return LabFileError(f"{path}:1: already exists; give another -o, or --force to replace it")


def _find_nic_nodes(text: str) -> Iterator[tuple[tuple[str, str], yaml.MappingNode]]:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for host in _list_items(root, "hosts"):
        for nic in _list_items(host, "nics"):
            if isinstance(nic, yaml.MappingNode):
                yield (_read_text(host, "name"), _read_text(nic, "name")), nic


def _find_value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _list_items(node: yaml.Node | None, key: str) -> list[yaml.Node]:
    value = _find_value(node, key)
    return list(value.value) if isinstance(value, yaml.SequenceNode) else []


def _read_text(node: yaml.Node, key: str) -> str:
    value = _find_value(node, key)
    return str(value.value) if value else ""


def _make_edits(text: str, node: yaml.MappingNode, nic_wiring: NicWiring) -> Iterator[tuple[int, int, str]]:
    """Yield edits (start, end, new text) that remove the existing keys, then append those of `nic_wiring`."""
    pairs = node.value
    for position, (key, value) in enumerate(pairs):
        if key.value in _WIRING_KEYS and position:
            yield _find_end(text, pairs[position - 1][1]), _find_end(text, value), ""
        elif key.value in _WIRING_KEYS:
            next_offset = pairs[1][0].start_mark.index if len(pairs) > 1 else _find_end(text, value)
            yield key.start_mark.index, next_offset, ""
    value_by_key = ((name, getattr(nic_wiring, name)) for name in _WIRING_KEYS)
    new_keys = [
        f"{name}: '{value.replace(chr(39), chr(39) * 2)}'"
        for name, value in value_by_key
        if value is not None
    ]
    end_offset = max(_find_end(text, value) for _, value in pairs)
    separator = ", " if node.flow_style else "\n" + " " * node.start_mark.column
    yield end_offset, end_offset, "".join(separator + key_text for key_text in new_keys)


def _find_end(text: str, node: yaml.Node) -> int:
    """Return the offset at which a value ends. PyYAML's end mark of a block lies after the comments that follow it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style:
        return int(node.end_mark.index)
    end_offsets = (
        [_find_end(text, value) for _, value in node.value] if isinstance(node, yaml.MappingNode) else []
    )
    return max(end_offsets, default=len(text[: node.end_mark.index].rstrip()))
