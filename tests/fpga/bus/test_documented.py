"""The page on registers, programs and buses is true where a machine can tell."""

import re
from pathlib import Path

import pytest

from fpga.bus.address import _SCHEMES
from fpga.count_action import (
    Action,
    ActionKind,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
    check,
)
from fpga.count_action.actions.memory import make_memory
from fpga.registers import StreamAccess, make_register_map

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/registers.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_example_runs(monkeypatch):
    pytest.importorskip("lark", reason="needs lark: pip install 'lightbed[fpga]'")
    pytest.importorskip("numba", reason="needs numba: pip install 'lightbed[fpga]'")
    monkeypatch.chdir(ROOT)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(example, names)
    assert [beats.tolist() for beats in names["outputs"].values()] == [[[1, 2], [3, 4]]]


def test_every_scheme_is_there():
    assert set(re.findall(r"^\| `(\w+)://", PAGE, re.MULTILINE)) == set(_SCHEMES)


def test_identities_are_those_of_the_tops():
    for streams in StreamAccess:
        assert f"`{streams.value:#010x}`" in PAGE


def generic(key):
    """Return the name of a register with what is particular to a datapath left out."""
    kind, *names = key
    if names and names[-1] in {"DATA", "PUSH", "WAITING", "LEVEL", "POP", "ADDRESS", "LOAD", "WORD"}:
        *names, what = names
        return "_".join([kind, *["NAME", "MODULE_NAME"][len(names) - 1 : len(names)], what])
    return "_".join([kind, *["NAME", "MODULE_NAME"][len(names) - 1 : len(names)]]) if names else kind


def test_every_kind_of_register_is_there(demo):
    section = PAGE.partition("## Register map")[2].partition("## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    described = {name for row in rows for name in re.findall("`(.*?)`", row)}
    memory, inputs = make_memory("m", "w", 4, 8)
    read = Action(ActionKind.READ, "c", "word", (Ref("go"),), 8, memory="w")
    count = Count("c", CountKind.LEVEL, "t", (Ref("go"),))
    module = Module("m", (count,), (Target("t", 1),), (memory, read))
    remembers = Datapath("memory", (Signal("go", SignalKind.FLAG), *inputs), (module,))
    assert check(remembers) == ()
    registers = (*make_register_map(demo), *make_register_map(remembers))
    assert {generic(register.key) for register in registers} == described
