"""Tables of NCCL's rules in `docs/reference/nccl-files.md`, from the rules by which tests read the files."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.lab.hosts.nccl_rules import ATTRIBUTE_RULES, CHILDREN_BY_ELEMENT, TEXT_RULES, FileKind


def write_nesting_table() -> Iterator[str]:
    """Yield the lines of the table of elements."""
    yield "| file | element | elements inside |"
    yield "|---|---|---|"
    for file, elements in CHILDREN_BY_ELEMENT.items():
        for name, inside in elements.items():
            if name and inside:
                yield f"| {file} | `{name}` | {', '.join(f'`{element}`' for element in inside)} |"


def write_text_table() -> Iterator[str]:
    """Yield the lines of the table of rules that are not about one attribute."""
    yield "| part | rule | source |"
    yield "|---|---|---|"
    for rule in TEXT_RULES:
        yield f"| {rule.subject} | {rule.meaning} | {rule.source} |"


def write_attribute_table(file: FileKind) -> Iterator[str]:
    """Yield the lines of the table of attributes of a file; attributes with one meaning share a line."""
    yield "| element | attribute | required | value | source |"
    yield "|---|---|---|---|---|"
    rows: dict[tuple[str, bool, str, str], list[str]] = {}
    for rule in ATTRIBUTE_RULES:
        if rule.file == file:
            key = (rule.element, rule.is_required, rule.meaning, rule.source)
            rows.setdefault(key, []).append(f"`{rule.attribute}`")
    for (element, is_required, meaning, source), names in rows.items():
        yield f"| `{element}` | {', '.join(names)} | {'yes' if is_required else 'no'} | {meaning} | {source} |"
