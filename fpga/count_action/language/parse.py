"""From text to tree: the grammar of `grammar.lark` read with lark, and its refusals in plain words.

After a mistake inside an item of a section the item is blanked and reading begins again, so that several mistakes
of a file are reported at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from fpga.count_action.diagnostics import CountActionError, Diagnostic, note, quoted
from fpga.count_action.language.syntax import FileText
from fpga.count_action.language.tree import TreeBuilder
from fpga.count_action.language.wording import expected_words, syntax_hint
from fpga.count_action.model import Location
from lightbed.wording import install_extra

_MAX_WORDS = 50_000
"""Words and signs of a text that are read."""
_MAX_MISTAKES = 10


def parse_tree(text: str, file: str) -> FileText:
    """Return the tree of a text. Raises `CountActionError` with every mistake that was found."""
    _check_characters(text, file)
    budget = _Budget(file)
    errors: list[Diagnostic] = []
    while len(errors) < _MAX_MISTAKES:
        try:
            tree = _parsed(text, file, budget)
        except CountActionError as refused:
            raise CountActionError(errors or refused.errors) from None
        except _lark().UnexpectedInput as mistake:
            errors.append(_explain(mistake, text, file))
            rest = _without_item(text, mistake)
            if rest is None:
                break
            text = rest
        else:
            if not errors:
                return tree
            break
    raise CountActionError(errors)


def _check_characters(text: str, file: str) -> None:
    if text.isascii():
        return
    errors = []
    for number, line in enumerate(text.split("\n"), 1):
        column = next((place for place, char in enumerate(line, 1) if not char.isascii()), 0)
        if column:
            errors.append(_foreign(Location(file, number, column), line[column - 1]))
        if len(errors) == _MAX_MISTAKES:
            break
    raise CountActionError(errors)


def _foreign(at: Location, char: str) -> Diagnostic:
    message = f"the character U+{ord(char):04X} ({quoted(char)[1:-1]}) is not ASCII"
    return note(at, message, "Write the file in ASCII, comments too.")


def _lark() -> Any:
    try:
        import lark
    except ImportError as error:
        message = f"reading the count-action language needs lark. Hint: {install_extra('fpga')}"
        raise ImportError(message) from error
    return lark


@cache
def _parser() -> Any:
    grammar = resources.files("fpga.count_action.language").joinpath("grammar.lark").read_text("ascii")
    return _lark().Lark(grammar, parser="lalr", keep_all_tokens=True, maybe_placeholders=True)


@dataclass
class _Budget:
    """So many words are read of one text, all readings after a mistake together."""

    file: str
    left: int = _MAX_WORDS

    def spend(self, token: Any) -> None:
        self.left -= 1
        if self.left < 0:
            at = Location(self.file, token.line, token.column)
            message = f"more than {_MAX_WORDS} words and signs"
            raise CountActionError([note(at, message, "Split the file, or write ranges.")])


def _parsed(text: str, file: str, budget: _Budget) -> FileText:
    """Read a text once. Bottom up without recursion: no depth of nesting is too much."""
    lark = _lark()
    reading = _parser().parse_interactive(text)
    try:
        for token in reading.iter_parse():
            budget.spend(token)
        tree = reading.feed_eof()
    except lark.UnexpectedToken as mistake:
        mistake.expected = reading.accepts() or mistake.expected
        raise
    builder = TreeBuilder(file)
    built: dict[int, Any] = {}
    for node in tree.iter_subtrees():
        children = [built[id(each)] if isinstance(each, lark.Tree) else each for each in node.children]
        built[id(node)] = builder.build(str(node.data), children)
    builder.report.settle()
    made: FileText = built[id(tree)]
    return made


# --------------------------------------------------------------------------------------- mistakes


def _explain(mistake: Any, text: str, file: str) -> Diagnostic:
    at = _location(mistake, text, file)
    before = _word_before(text, mistake)
    if isinstance(mistake, _lark().UnexpectedCharacters):
        found = quoted(text[mistake.pos_in_stream])
        return note(
            at,
            f"the character {found} cannot stand here",
            syntax_hint("", before, set(mistake.allowed or ()), text[mistake.pos_in_stream]),
        )
    token = mistake.token
    expected = set(mistake.accepts or mistake.expected)
    found = "the end of the text" if token.type == "$END" else quoted(str(token))
    hint = syntax_hint(token.type, before, expected, str(token))
    return note(at, f"{found} cannot stand here; expected {expected_words(expected)}", hint)


def _location(mistake: Any, text: str, file: str) -> Location:
    if _at_end(mistake):
        lines = text.rstrip().split("\n")
        return Location(file, len(lines), len(lines[-1]) + 1)
    return Location(file, mistake.line, mistake.column)


def _at_end(mistake: Any) -> bool:
    return getattr(mistake, "token", None) is not None and mistake.token.type == "$END"


def _word_before(text: str, mistake: Any) -> str:
    return (
        ""
        if _at_end(mistake)
        else text[max(0, mistake.pos_in_stream - 200) : mistake.pos_in_stream].rstrip()[-1:]
    )


def _without_item(text: str, mistake: Any) -> str | None:
    """Return the text without the item that holds the mistake; None when the mistake is not inside an item."""
    if _at_end(mistake):
        return None
    place = mistake.pos_in_stream
    before, after = text[:place], text[place:]
    if before.count("{") - before.count("}") != 2:
        return None
    begin = max(before.rfind(";"), before.rfind("{")) + 1
    ends = [
        end for end in (after.find(";") + 1, after.find("}")) if end > 0 or (end == 0 and after[:1] == "}")
    ]
    end = place + min(ends, default=len(after))
    if "{" in text[begin:end] or begin == end:
        return None
    return text[:begin] + _blank(text[begin:end]) + text[end:]


def _blank(text: str) -> str:
    return "".join("\n" if char == "\n" else " " for char in text)
