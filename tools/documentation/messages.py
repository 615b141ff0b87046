"""`python -m tools.documentation.messages`: tables of errors and findings, and one page with every message.

The tables of `docs/reference/errors.md` and `docs/reference/findings.md` are made from the classes and from `KINDS`.
The page `build/messages.md` has every text that a user can meet, file by file, to be read from top to bottom.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from lightbed.errors import LightbedError
from testbed.operate.findings import KINDS

ROOT = Path(__file__).parents[2]
PACKAGES = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")

ERRORS = ROOT / "docs/reference/errors.md"
FINDINGS = ROOT / "docs/reference/findings.md"

TABLE = re.compile(r"(<!-- table: (?P<source>[^>]*) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A table between two comments; the first names what it is made from."""

SPEAKING = frozenset(
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
"""Functions whose texts reach a user, besides everything that is raised."""


def _describe(error: type[LightbedError]) -> str:
    """Return the summary of a class as a cell, without capital and full stop; of a root the first sentence alone."""
    text = (inspect.getdoc(error) or "").partition("\n\n")[0].replace("\n", " ")
    text = text.partition(". ")[0] if text.startswith("Root") else text
    text = text.removesuffix(".")
    return text[:1].lower() + text[1:] if not re.match(r"[A-Z][\w-]*[A-Z]|`|Ctrl|If-|Idem", text) else text


def error_table(modules: str) -> Iterator[str]:
    """Yield the rows for all error classes that these modules define, separated by spaces."""
    yield "| code | class | who | when |"
    yield "|---|---|---|---|"
    for name in modules.split():
        for error in vars(importlib.import_module(name)).values():
            if isinstance(error, type) and issubclass(error, LightbedError) and error.__module__ == name:
                yield f"| `{error.code}` | `{error.__name__}` | {error.who} | {_describe(error)} |"


def finding_table() -> Iterator[str]:
    """Yield the rows for all kinds of findings, in the order in which they are reported."""
    yield "| kind | meaning | hint |"
    yield "|---|---|---|"
    for name, kind in KINDS.items():
        yield f"| `{name}` | {kind.meaning} | {kind.hint} |"


def render(text: str) -> str:
    """Return a page with its tables made again."""

    def table(match: re.Match[str]) -> str:
        source = match["source"]
        lines = finding_table() if source == "findings" else error_table(source)
        return "\n".join([match[1].rstrip("\n"), "", *lines, "", match[3]])

    return TABLE.sub(table, text)


def text_of(node: ast.expr) -> str | None:
    """Return the text of a literal or an f-string, its fields in braces; None for anything else."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(
                text_of(each) or f"{{{ast.unparse(getattr(each, 'value', each))}}}" for each in values
            )
        case ast.IfExp(body=body, orelse=orelse):
            texts = [text for text in (text_of(body), text_of(orelse)) if text]
            return " / ".join(texts) or None
    return None


def collect_messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every message in a file: of two words at least, in the order of the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    raised = {id(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    messages = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func).rpartition(".")[2]
            if id(call) in raised or name in SPEAKING or name.endswith("Error"):
                for value in (*call.args, *(each.value for each in call.keywords)):
                    text = text_of(value)
                    if text and " " in text.strip():
                        messages.add((value.lineno, value.col_offset, text))
    for line, _, text in sorted(messages):
        yield line, text


def message_page() -> Iterator[str]:
    """Yield the lines of the page with every message."""
    yield "# Every message\n"
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            messages = list(collect_messages(path))
            if messages:
                yield f"\n## {path.relative_to(ROOT)}\n"
                yield from (f"{line}. {' '.join(text.split())}" for line, text in messages)


def main() -> None:
    """Make the tables again, and write the page of messages."""
    for page in (ERRORS, FINDINGS):
        page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")
    target = ROOT / "build/messages.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(message_page()) + "\n", encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
