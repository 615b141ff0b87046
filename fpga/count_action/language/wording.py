"""The grammar's terminals in words a reader of the language knows, and what to do about common slips."""

from __future__ import annotations

from collections.abc import Collection

_WORDS = {
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
}
_OPERATORS = frozenset({"PLUS", "MINUS", "STAR", "SLASH"})
_ITEM_WORDS = frozenset(
    {
        "SUM",
        "FOR",
        "ON",
        "STREAM",
        "EMIT",
        "STORE",
        "PULSE",
        "SET",
        "CLEAR",
        "ADVANCE",
        "FLAG",
        "NUMBER",
        "NAME",
    }
)
_SECTIONS = frozenset({"INPUTS", "COUNTS", "TARGETS", "ACTIONS"})


def expected_words(terminals: Collection[str]) -> str:
    """Return the terminals that could stand there, the telling ones first; operators only when nothing else could."""
    telling = sorted(set(terminals) - _OPERATORS) or sorted(terminals)
    words = [_WORDS.get(name, f"`{name.lower()}`") for name in telling]
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} or {words[-1]}" if words else "nothing more"


def syntax_hint(found: str, before: str, expected: Collection[str]) -> str:
    """Return what to do about the terminal `found` after the character `before`, where `expected` could stand."""
    there = set(expected)
    slips = (
        (found == "$END", "Close what is open: every `{`, `(` and `[` has its partner."),
        (
            there >= _SECTIONS,
            "A module has the sections `inputs: {...}`, `counts: {...}`, `targets: {...}`, `actions: {...}`.",
        ),
        ("MODULE" in there, "A file has `import`, `use`, `inputs: {...}` and `module NAME {...}`."),
        ("SEMICOLON" in there and found in _ITEM_WORDS, "Put `;` between two items."),
        (
            there == {"COLON"} and before != "",
            "A colon stands after the name of a section, a label and an index.",
        ),
        (
            there >= {"INTEGER", "NAME"},
            "Numbers are decimal, or made of parameters, index names, + - * / and brackets.",
        ),
    )
    return next(
        (hint for slipped, hint in slips if slipped), "See the grammar in docs/reference/count-action.md."
    )
