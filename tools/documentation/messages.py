"""Generator of the tables of errors and findings, and of a page with every message.

`python -m tools.documentation.messages` updates the tables in `docs/reference/errors.md` and
`docs/reference/findings.md` from the error classes and from `FINDING_KINDS`. It also writes `build/messages.md`, a
page for reviewers with every text that a user may see, file by file.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from lightbed.errors import LightbedError
from testbed.operate.findings import FINDING_KINDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")

ERRORS = ROOT / "docs/reference/errors.md"
FINDINGS = ROOT / "docs/reference/findings.md"

TABLE = re.compile(r"(<!-- table: (?P<source>[^>]*) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A table between two comments; the first comment names its source."""

MESSAGE_FUNCTIONS = frozenset(
    {
        "Finding",
        "FindingKind",
        "Message",
        "argument",
        "echo",
        "error",
        "fail",
        "info",
        "note",
        "option",
        "print",
    }
    | {"progress", "refuse", "report", "say", "secho", "tell", "warn", "warning"}
)
"""Functions whose texts a user sees, in addition to all raised errors."""


def _describe(error: type[LightbedError]) -> str:
    """Return the summary of an error class for a table cell, in lower case and without the final full stop.

    For a root class, this is only the first sentence.
    """
    text = (inspect.getdoc(error) or "").partition("\n\n")[0].replace("\n", " ")
    text = text.partition(". ")[0] if text.startswith("Root") else text
    text = text.removesuffix(".")
    return text[:1].lower() + text[1:] if not re.match(r"[A-Z][\w-]*[A-Z]|`|Ctrl|If-|Idem", text) else text


def write_error_table(modules: str) -> Iterator[str]:
    """Yield the table of all error classes that the modules define; `modules` is a list separated by spaces."""
    yield "| code | class | who | when |"
    yield "|---|---|---|---|"
    for name in modules.split():
        for error in vars(importlib.import_module(name)).values():
            if isinstance(error, type) and issubclass(error, LightbedError) and error.__module__ == name:
                yield f"| `{error.code}` | `{error.__name__}` | {error.who} | {_describe(error)} |"


def write_finding_table() -> Iterator[str]:
    """Yield the table of all kinds of findings, in the order of `FINDING_KINDS`."""
    yield "| kind | meaning | hint |"
    yield "|---|---|---|"
    for name, kind in FINDING_KINDS.items():
        yield f"| `{name}` | {kind.meaning} | {kind.hint} |"


def update_tables(text: str) -> str:
    """Return the text of a page with updated tables."""

    def table(match: re.Match[str]) -> str:
        source = match["source"]
        lines = write_finding_table() if source == "findings" else write_error_table(source)
        return "\n".join([match[1].rstrip("\n"), "", *lines, "", match[3]])

    return TABLE.sub(table, text)


def get_text(node: ast.expr) -> str | None:
    """Return the text of a string literal or f-string, or both texts of a conditional; None for other expressions."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(
                get_text(value) or f"{{{ast.unparse(getattr(value, 'value', value))}}}" for value in values
            )
        case ast.IfExp(body=body, orelse=orelse):
            texts = [text for text in (get_text(body), get_text(orelse)) if text]
            return " / ".join(texts) or None
    return None


def collect_messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of every message of two or more words in a file, in order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    raised_ids = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    messages = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func).rpartition(".")[2]
            if id(call) in raised_ids or name in MESSAGE_FUNCTIONS or name.endswith("Error"):
                for value in (*call.args, *(keyword.value for keyword in call.keywords)):
                    text = get_text(value)
                    if text and " " in text.strip():
                        messages.add((value.lineno, value.col_offset, text))
    for line, _, text in sorted(messages):
        yield line, text


def write_message_page() -> Iterator[str]:
    """Yield the lines of the page with every message."""
    yield "# Every message\n"
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            messages = list(collect_messages(path))
            if messages:
                yield f"\n## {path.relative_to(ROOT)}\n"
                yield from (f"{line}. {' '.join(text.split())}" for line, text in messages)


def main() -> None:
    """Update the tables, and write the page of messages."""
    for page in (ERRORS, FINDINGS):
        page.write_text(update_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    target = ROOT / "build/messages.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(write_message_page()) + "\n", encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
