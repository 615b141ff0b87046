"""Parser of the language: `grammar.lark`, read with lark, with error messages and hints.

After an error inside an item of a section, the parser replaces the item by spaces and parses the text again. One run
thus reports several errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from fpga.count_action.actions import VERBS
from fpga.count_action.diagnostics import CountActionError, Diagnostic, make_diagnostic, quote
from fpga.count_action.language.syntax import FileText
from fpga.count_action.language.tree import TreeBuilder
from fpga.count_action.model import Location
from lightbed.wording import describe_extra

_MAX_TOKENS = 50_000
"""Largest number of tokens of a text."""
_MAX_ERRORS = 10


def parse_tree(text: str, file: str) -> FileText:
    """Return the syntax tree of a text. Raise `CountActionError` with up to 10 errors."""
    _check_characters(text, file)
    budget = _Budget(file)
    errors: list[Diagnostic] = []
    while len(errors) < _MAX_ERRORS:
        try:
            tree = _parse(text, file, budget)
        except CountActionError as error:
            raise CountActionError(errors or error.errors) from None
        except _import_lark().UnexpectedInput as syntax_error:
            errors.append(_explain(syntax_error, text, file))
            remaining_text = _blank_item(text, syntax_error)
            if remaining_text is None:
                break
            text = remaining_text
        else:
            if not errors:
                return tree
            break
    raise CountActionError(errors)


def _check_characters(text: str, file: str) -> None:
    if text.isascii():
        return
    errors = []
    for line_number, line in enumerate(text.split("\n"), 1):
        column = next((column_number for column_number, char in enumerate(line, 1) if not char.isascii()), 0)
        if column:
            errors.append(_describe_foreign_character(Location(file, line_number, column), line[column - 1]))
        if len(errors) == _MAX_ERRORS:
            break
    raise CountActionError(errors)


def _describe_foreign_character(location: Location, char: str) -> Diagnostic:
    message = f"the character U+{ord(char):04X} ({quote(char)[1:-1]}) is not ASCII"
    return make_diagnostic(location, message, "Write the file in ASCII, including comments.")


def _import_lark() -> Any:
    try:
        import lark
    except ImportError as error:
        message = f"reading the count-action language needs lark. Hint: {describe_extra('fpga')}"
        raise ImportError(message) from error
    return lark


@cache
def _make_parser() -> Any:
    grammar = resources.files("fpga.count_action.language").joinpath("grammar.lark").read_text("ascii")
    return _import_lark().Lark(grammar, parser="lalr", keep_all_tokens=True, maybe_placeholders=True)


@dataclass
class _Budget:
    """Number of tokens that may still be read. All parses of one text share the budget."""

    file: str
    remaining_tokens: int = _MAX_TOKENS

    def spend(self, token: Any) -> None:
        self.remaining_tokens -= 1
        if self.remaining_tokens < 0:
            location = Location(self.file, token.line, token.column)
            message = f"the text has more than {_MAX_TOKENS} tokens"
            raise CountActionError([make_diagnostic(location, message, "Split the file, or write ranges.")])


def _parse(text: str, file: str, budget: _Budget) -> FileText:
    """Parse a text once. The tree is built bottom up without recursion, so nesting may be of any depth."""
    lark = _import_lark()
    parser = _make_parser().parse_interactive(text)
    try:
        for token in parser.iter_parse():
            budget.spend(token)
        tree = parser.feed_eof()
    except lark.UnexpectedToken as syntax_error:
        syntax_error.expected = parser.accepts() or syntax_error.expected
        raise
    builder = TreeBuilder(file)
    nodes: dict[int, Any] = {}
    for node in tree.iter_subtrees():
        children = [nodes[id(child)] if isinstance(child, lark.Tree) else child for child in node.children]
        nodes[id(node)] = builder.build(str(node.data), children)
    builder.report.raise_errors()
    file_text: FileText = nodes[id(tree)]
    return file_text


# --------------------------------------------------------------------------------------- mistakes


def _explain(syntax_error: Any, text: str, file: str) -> Diagnostic:
    location = _locate(syntax_error, text, file)
    previous_character = _find_character_before(text, syntax_error)
    if isinstance(syntax_error, _import_lark().UnexpectedCharacters):
        unexpected_text = quote(text[syntax_error.pos_in_stream])
        return make_diagnostic(
            location,
            f"unexpected character {unexpected_text}",
            find_syntax_hint(
                "", previous_character, set(syntax_error.allowed or ()), text[syntax_error.pos_in_stream]
            ),
        )
    token = syntax_error.token
    expected_terminals = set(syntax_error.accepts or syntax_error.expected)
    unexpected_text = "end of text" if token.type == "$END" else quote(str(token))
    hint = find_syntax_hint(token.type, previous_character, expected_terminals, str(token))
    return make_diagnostic(
        location, f"unexpected {unexpected_text}; expected {select_expected_words(expected_terminals)}", hint
    )


def _locate(syntax_error: Any, text: str, file: str) -> Location:
    if _is_at_end(syntax_error):
        lines = text.rstrip().split("\n")
        return Location(file, len(lines), len(lines[-1]) + 1)
    return Location(file, syntax_error.line, syntax_error.column)


def _is_at_end(syntax_error: Any) -> bool:
    return getattr(syntax_error, "token", None) is not None and syntax_error.token.type == "$END"


def _find_character_before(text: str, syntax_error: Any) -> str:
    return (
        ""
        if _is_at_end(syntax_error)
        else text[max(0, syntax_error.pos_in_stream - 200) : syntax_error.pos_in_stream].rstrip()[-1:]
    )


def _blank_item(text: str, syntax_error: Any) -> str | None:
    """Return the text with the item of the error blanked, or None if the error is not inside an item."""
    if _is_at_end(syntax_error):
        return None
    position = syntax_error.pos_in_stream
    text_before, text_after = text[:position], text[position:]
    if text_before.count("{") - text_before.count("}") != 2:
        return None
    begin = max(text_before.rfind(";"), text_before.rfind("{")) + 1
    item_ends = [
        end
        for end in (text_after.find(";") + 1, text_after.find("}"))
        if end > 0 or (end == 0 and text_after[:1] == "}")
    ]
    end = position + min(item_ends, default=len(text_after))
    if "{" in text[begin:end] or begin == end:
        return None
    return text[:begin] + _blank_out(text[begin:end]) + text[end:]


def _blank_out(text: str) -> str:
    return "".join("\n" if char == "\n" else " " for char in text)


_TERMINAL_NAMES = {
    "NAME": "a name",
    "INTEGER": "a number",
    "STRING": 'a file name in "..."',
    "$END": "the end of the text",
    "<END-OF-FILE>": "the end of the text",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COLON": "`:`",
    "SEMICOLON": "`;`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "EQUAL": "`=`",
    "PLUS": "`+`",
    "MINUS": "`-`",
    "STAR": "`*`",
    "SLASH": "`/`",
    "RELATION": "a comparison",
    "MOVE": "a shift",
    "AT_LEAST": "`at least`",
    "AT_MOST": "`at most`",
    "EXACTLY": "`exactly`",
}
_OPERATORS = frozenset({"PLUS", "MINUS", "STAR", "SLASH"})
_VERBS = [*dict.fromkeys(rule.partition("_")[0] for rule in VERBS if rule != "memory")]
"""First words of actions."""
_ITEM_WORDS = frozenset(["SUM", "FOR", "ON", "FLAG", "NUMBER", "NAME", *(verb.upper() for verb in _VERBS)])


def select_expected_words(terminals: Collection[str]) -> str:
    """Return the expected terminals as text. Operators are left out unless nothing else is expected."""
    names = sorted(set(terminals) - _OPERATORS) or sorted(terminals)
    words = [_TERMINAL_NAMES.get(name, f"`{name.lower()}`") for name in names]
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} or {words[-1]}" if words else "nothing more"


def find_syntax_hint(
    terminal_name: str, previous_character: str, expected_terminals: Collection[str], text: str = ""
) -> str:
    """Return the hint for an unexpected `terminal_name`, with its `text`, after the character `previous_character`."""
    terminals = frozenset(expected_terminals)
    for predicate, hint in _HINTS:
        if predicate(terminal_name, text, previous_character, terminals):
            return hint
    return "See the grammar in docs/reference/count-action.md."


_Predicate = Callable[[str, str, str, frozenset[str]], bool]


def _expects_all(*words: str) -> _Predicate:
    """Return the predicate that all of these terminals are expected."""
    return lambda _terminal_name, _text, _previous_character, expected_types: expected_types >= set(words)


def _expects_only(*words: str) -> _Predicate:
    """Return the predicate that some of these terminals are expected, and no others."""
    return lambda _terminal_name, _text, _previous_character, expected_types: (
        bool(expected_types) and expected_types <= set(words)
    )


def _is_text(*texts: str) -> _Predicate:
    return lambda _terminal_name, text, _previous_character, _expected_types: text in texts


_CLAUSES = frozenset({"BY", "OVER", "AT_MOST", "TO", "WHILE", "WIDTH"})
_ORDER_HINT = "The order in a count is: terms, `by`, `over cycles`, `at most`, `to`, `while`, `width`."
_HINTS: tuple[tuple[_Predicate, str], ...] = (
    (lambda terminal_name, *_: terminal_name == "$END", "Close every `{`, `(` and `[`."),
    (_is_text("&", "|"), "Write `and`, `or` and `not`. Select bits with `NAME[7:0]`."),
    (_is_text("^", "~", "%"), "Of numbers there are `+`, `-`, `<<` and `>>`. Two flags differ if `a != b`."),
    (_is_text("?"), "Write `A if CONDITION else B`."),
    (_is_text("!"), "Write `and`, `or` and `not`."),
    (_is_text("'"), "Write constants as 255 or 0xFF, without a width."),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "LBRACE" and "NOT" in expected_types
        ),
        "Write `concat(a, b)`, the highest bits first.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "WITH" and expected_types == {"RBRACE", "SEMICOLON"}
        ),
        "Write it before `buffered`: stream NAME of 8 bits with last buffered.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "TO" and "RSQB" in expected_types and "COLON" not in expected_types
        ),
        "Write the range in brackets after it: `x[i] (i = 1 to 4)`. Give each memory a name of its own.",
    ),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            text in {"at", "into"} and {"IN", "AS"} <= expected_types
        ),
        "Write the address after the memory: `store VALUE in MEMORY[ADDRESS]`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "BITS" and "OF" in expected_types and "LSQB" not in expected_types
        ),
        "Write the number of words and their width: `memory NAME: 256 of 16 bits`.",
    ),
    (_is_text("buffered"), "Write it last, for an external stream: stream NAME of 8 bits buffered."),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            "ACTIONS" in expected_types and text in {"outputs", "output"}
        ),
        "An output is not declared: its action names it, `stream x.data as NAME`.",
    ),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            "ACTIONS" in expected_types and text in {"registers", "register", "reg", "state"}
        ),
        "A register is a number that an action stores: `store FORMULA width 16 as NAME`.",
    ),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            "ACTIONS" in expected_types and text in {"let", "wire", "define", "assign"}
        ),
        "A formula has no name: write it where it is used, or `store` it one cycle before.",
    ),
    (
        _expects_all("COUNTS", "TARGETS", "ACTIONS"),
        (
            "A module has the sections `inputs: {...}`, `counts: {...}`, `targets: {...}`, `tables: {...}`,"
            " `actions: {...}`, memories `memory NAME: 256 of 16 bits`, and the properties `always {...}`,"
            " `never {...}` and `assume {...}`."
        ),
    ),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            "MODULE" in expected_types and text in {"#", "/"}
        ),
        "A comment begins with `//` and ends with its line.",
    ),
    (_expects_all("MODULE"), "A file has `import`, `use`, `inputs: {...}` and `module NAME {...}`."),
    (_expects_all("TURNS", "PRIORITY"), "Write `by turns` or `by priority`."),
    (
        _expects_only("PRIORITY"),
        "Write `by priority`: of stores that fire together, the first in the text wins.",
    ),
    (
        _expects_all("PULSE", "EMIT", "ADVANCE"),
        (
            f"An action is {', '.join(f'`{verb}`' for verb in _VERBS[:-1])} or `{_VERBS[-1]}`; its condition"
            " belongs in its count: `on COUNT: pulse done`."
        ),
    ),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            text == "signed" and "STREAM" in expected_types
        ),
        "Write it after the width: `stream NAME of 8 bits signed`.",
    ),
    (
        _expects_all("FLAG", "NUMBER", "STREAM"),
        "An input is `stream NAME of 8 bits`, `flag NAME` or `number NAME of 8 bits`.",
    ),
    (_expects_only("SUM"), "A count begins with `sum`: `sum x.valid`, or `LABEL: sum x.valid`."),
    (
        _expects_only("MAX", "MIN", "SUM"),
        "Write `emit sum x.data`, or `stream x.data` for the samples themselves.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "AT_LEAST" or (terminal_name == "RELATION" and "AT_LEAST" in expected_types)
        ),
        "Write it before the number: `at least 3`, `NAME: at least 3`, or `NAME: 3`.",
    ),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            text == "in" and "OR" in expected_types
        ),
        "Write `n == 1 or n == 2`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "TO" and "AS" in expected_types
        ),
        "Name what the action drives: `as NAME`.",
    ),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            text in {"when", "if"} and "WHILE" in expected_types
        ),
        "Write `while CONDITION` after the sum.",
    ),
    (
        lambda _terminal_name, text, _previous_character, expected_types: (
            text in {"when", "if"} and expected_types >= {"LSQB", "SEMICOLON"}
        ),
        "An action has no condition: write it in its count, after `while`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "EQUAL" and {"AS", "IN"} <= expected_types
        ),
        "Write the value before the name: `store 1 as NAME`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "EQUAL" and "WINS" in expected_types
        ),
        "A flag has one bit, which `set` makes 1. For a number write `store 1 as NAME`.",
    ),
    (_expects_all("ELSE"), "Write `A if CONDITION else B`."),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "RELATION"
            and {"AND", "WIDTH"} <= expected_types
            and not expected_types & {"OVER", "WHILE"}
        ),
        "Compare two values at a time: `3 <= n and n < 5`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            (terminal_name in {"AND", "OR"} and "OVER" in expected_types)
            or (terminal_name in {"AND", "OR", "RELATION"} and expected_types == {"RPAR", "PLUS", "MINUS"})
        ),
        "A sum has no conditions: write them after `while`, `sum 1 while a and b`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "RELATION" and bool(expected_types & _CLAUSES)
        ),
        "A count has no comparison: write its target in `targets`, and its conditions after `while`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "WHILE"
            and (
                "AS" in expected_types
                or "WINS" in expected_types
                or expected_types == {"LSQB", "RBRACE", "SEMICOLON"}
            )
        ),
        "An action has no condition: write it in its count, or `store A if CONDITION else B as NAME`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "TO" and expected_types >= {"RELATION", "WIDTH"} and "AS" not in expected_types
        ),
        f"Write `to TARGET` before `while`. {_ORDER_HINT}",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name in _CLAUSES and bool(expected_types & {*_CLAUSES, "SEMICOLON"})
        ),
        _ORDER_HINT,
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "WITH" and "LAST" in expected_types
        ),
        "Write the end of a packet as a condition: `stream x.data last x.last`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "LAST" and "WITH" in expected_types
        ),
        "Write `stream NAME of 8 bits with last`, or `with last and keep`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "SIGNED" and expected_types == {"RBRACE", "SEMICOLON"}
        ),
        "Numbers have no sign: declare a stream, `stream NAME of 8 bits signed`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "SIGNED" and {"AS", "IN"} <= expected_types
        ),
        "A stored number has no sign: remove `signed`.",
    ),
    (
        _expects_only("MODULO"),
        "Write `advance NAME modulo 8`: it goes up by 1, from 0 to 7, and starts again.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "LSQB" and expected_types == {"NAME"}
        ),
        "Write the range after the name: `NAME[1 to 4]`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "RSQB" and "TO" in expected_types
        ),
        "Write the first and the last element: `NAME[1 to 4]`.",
    ),
    (
        _expects_only("LBRACE", "LPAR"),
        "A module is `module NAME {...}`, or `module NAME (PARAMETER = 4) {...}`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name in {"OR", "AND", "COMMA"} and expected_types == {"COLON", "LSQB"}
        ),
        "An action has one count: write one action for each, `on a: pulse p; on b: pulse q`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "DOT" and expected_types == {"COLON", "LSQB"}
        ),
        "An action belongs to a count: `LABEL: sum x.valid over cycles while x.last`, and `on LABEL: pulse p`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "LBRACE" and "COLON" in expected_types and expected_types != {"COLON"}
        ),
        "Items have no brackets: write `on LABEL:`, or `for k = 0 to 3:`, before each.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "EQUAL"
            and {"COLON", "LSQB"} <= expected_types
            and "RELATION" not in expected_types
        ),
        "Write a colon after the name: `NAME: 20`, `LABEL: sum x.valid`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "COMMA" and "SEMICOLON" in expected_types
        ),
        "Put `;` between two items.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "UNTIL" and "SEMICOLON" in expected_types
        ),
        "`until` belongs to `by turns until last`. Let a count `set` and `clear` a flag, and write `while FLAG`.",
    ),
    (_expects_only("LAST"), "Write `until last`, `with last` or `with last and keep`."),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "NAME" and expected_types >= {"AS", "WITH", "SIGNED"}
        ),
        "`merge` sends the beat that its count selects: name no stream, and write `merge as NAME`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "FOR" and "LPAR" in expected_types
        ),
        "Write the range in brackets after it: `x[i] (i = 1 to 4)`.",
    ),
    (_expects_all("BITS"), "Write `bits` after a width: `stream NAME of 8 bits`."),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            expected_types >= {"OF", "STAR"}
            or (terminal_name == "OF" and "COLON" in expected_types)
            or (terminal_name == "COLON" and expected_types == {"NAME"})
        ),
        "Write the number of words and their width: `memory NAME: 256 of 16 bits`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "IN" and "AS" in expected_types
        ),
        "A word has the width of its memory: remove `width`.",
    ),
    (_expects_only("AS"), "Give it a name: `read MEMORY[ADDRESS] as NAME`."),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            expected_types == {"LSQB"} and terminal_name in {"AS", "BY", "RBRACE", "SEMICOLON"}
        ),
        "Write an address after the memory: `MEMORY[ADDRESS]`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "DOT" and expected_types == {"LSQB"}
        ),
        "Only its module reads and stores in a memory: write `read` there, and MODULE.NAME for the number.",
    ),
    (_expects_all("OF"), "Write `of` and a width: `stream NAME of 8 bits`."),
    (
        lambda terminal_name, _text, previous_character, _expected_types: (
            terminal_name == "DOT" and previous_character.isdigit()
        ),
        "Numbers are whole.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "EQUAL" and "RELATION" in expected_types
        ),
        "Compare with `==`, `!=`, `<`, `<=`, `>` or `>=`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name in {"STAR", "SLASH"} and "RELATION" in expected_types
        ),
        "Signals cannot be multiplied or divided: compute the product outside, or `shift` a sum.",
    ),
    (
        lambda terminal_name, _text, previous_character, expected_types: (
            terminal_name == "DOT" and previous_character == "]" and "MOVE" in expected_types
        ),
        "Bits come last: `x.data[1][7:0]`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "RSQB" and "COLON" in expected_types
        ),
        "Write bits with a colon: `[3:3]` is bit 3.",
    ),
    (
        lambda terminal_name, *_: terminal_name == "MOVE",
        "Put a shift in brackets: `emit sum (x.data >> 2)`; `emit sum x.data shift 2` shifts the sum.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "RPAR" and "NOT" in expected_types
        ),
        "Write a value between the brackets.",
    ),
    (
        lambda terminal_name, _text, previous_character, _expected_types: (
            terminal_name == "RELATION" and previous_character in "<>"
        ),
        "Write `<<` or `>>` and a number of bits: x.data >> 2.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "NAME" and {"SEMICOLON", "OVER"} <= expected_types
        ),
        "Put `;` between two items, `+` between two terms of a sum, and conditions after `while`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            "SEMICOLON" in expected_types and terminal_name in _ITEM_WORDS
        ),
        "Put `;` between two items.",
    ),
    (
        lambda terminal_name, _text, previous_character, expected_types: (
            expected_types == {"COLON"} and terminal_name == "RBRACE" and previous_character == "]"
        ),
        "Write a colon and the values: `NAME[0 to 7]: 0` in `tables`, `NAME[k]: sum x` in `counts`.",
    ),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            expected_types == {"COLON"} and terminal_name == "RBRACE"
        ),
        "A count begins with `sum`: `sum x.valid`, or `LABEL: sum x.valid`.",
    ),
    (
        lambda _terminal_name, _text, previous_character, expected_types: (
            expected_types == {"COLON"} and previous_character != ""
        ),
        "Write a colon after the name of a section, a label and an index.",
    ),
    (_expects_only("LSQB"), "A table has a range: `NAME[0 to 7]: 1, 2, ...`."),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "COLON" and "RSQB" in expected_types
        ),
        "Write the range after the name: `NAME[i].valid (i = 1 to 4)`. Bits, `NAME[7:0]`, are for formulas only.",
    ),
    (_expects_only("EQUAL"), "Write `(i = 1 to 4)`."),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "INTEGER" and expected_types == {"CYCLES"}
        ),
        "Write `over cycles`, and the number in `targets`.",
    ),
    (_expects_only("CYCLES"), "Write `over cycles`."),
    (_expects_only("STRING"), 'Write the name of the file in quotation marks: import "a.ca";'),
    (_expects_only("AS", "WIDTH", "IN"), "Give it a name: `store x.data as NAME`."),
    (_expects_only("AS", "LPAR"), "Give the instance a name: `use MODULE as NAME;`."),
    (
        lambda terminal_name, _text, _previous_character, expected_types: (
            terminal_name == "INTEGER" and expected_types == {"LPAR", "NAME"}
        ),
        "Name the target: `targets: { NAME: 20 }`, and `to NAME` in the count.",
    ),
    (
        lambda _terminal_name, _text, _previous_character, expected_types: expected_types == {"LPAR", "NAME"},
        "Name a target, or write a formula in brackets.",
    ),
    (_expects_only("NAME"), "Write a name: letters, digits and underscores. Omit empty brackets."),
    (
        _expects_only(
            "RPAR", "COMMA", "RELATION", "MOVE", "AND", "OR", "IF", "PLUS", "MINUS", "DOT", "LSQB", "LPAR"
        ),
        "Close the bracket: `)`.",
    ),
    (
        _expects_all("INTEGER", "NAME"),
        "Numbers are decimal or hexadecimal (0xFF), or made of parameters, index names, + - * / and brackets.",
    ),
)
"""Predicates on a syntax error, with their hints. The first predicate that holds gives the hint, so specific predicates
come first."""
