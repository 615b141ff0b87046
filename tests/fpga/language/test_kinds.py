"""The table of kinds of actions: whole, known to the grammar, and proven by other code than they are built by."""

import dis
import inspect
from importlib import resources

import pytest

from fpga.count_action import ActionKind
from fpga.count_action.actions import KINDS, VERBS, Kind, proof


def globals_of(code):
    """Return the names of the module that a function and those inside it look up."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return found.union(*(globals_of(each) for each in code.co_consts if inspect.iscode(each)))


def test_every_kind_is_in_the_table():
    assert set(KINDS) == set(ActionKind)
    assert [kind.kind for kind in KINDS.values()] == list(KINDS)
    assert [kind.noun for kind in KINDS.values() if kind.kind.drives and not kind.noun] == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind.value)
def test_a_kind_answers_every_back_end_that_asks_it(kind):
    methods = ["write", "describe"]
    methods += ["parse"] if kind.rules else []
    methods += ["drive", "update", "build", "prove"] if kind.kind.drives else []
    assert [name for name in methods if getattr(type(kind), name) is getattr(Kind, name)] == []


def test_verbs_are_rules_of_the_grammar():
    grammar = resources.files("fpga.count_action.language").joinpath("grammar.lark").read_text("ascii")
    assert len(VERBS) >= 9
    assert [rule for rule in VERBS if f"\n{rule}: " not in grammar and f"-> {rule}\n" not in grammar] == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.kind.value)
def test_hardware_is_built_without_what_proves_it(kind):
    own = {name for name, value in vars(proof).items() if getattr(value, "__module__", "") == proof.__name__}
    own |= {"TRUE", "FALSE", "CLOCK_CONNECTIONS"}
    assert globals_of(type(kind).build.__code__) & own == set()
    assert {"Check", "CLOCK_CONNECTIONS", "write_bit"} <= own
