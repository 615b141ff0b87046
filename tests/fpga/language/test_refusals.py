# ruff: noqa: E501, ISC004
"""Texts that are refused: every rule that can be broken, with the place, the reason and the hint."""

from __future__ import annotations

import pytest
from growth import ratio_of_costs
from libraries import skip_without

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")

from fpga.count_action import CountActionError, Diagnostic, load, parse_text
from fpga.count_action.language.unparse import unparse

M = "module m { "
STREAM_TWICE = "module m { counts: { sum x.valid over cycles } targets: { 1 } actions: { stream x.data; stream x.data } }"
CASES = [
    # syntax
    ("module m { counts { sum x } }", 1, 19, "unexpected `{`; expected `:`", "Write a colon after the name of a section, a label and an index."),
    (M + "counts: { sum x sum y } }", 1, 28, "unexpected `sum`; expected `at most`, `by`, `.`, `(`, `[`, `over`, `}`,", "Put `;` between two items"),
    (M + "counts: { sum x } ", 1, 29, "unexpected end of text; expected `actions`, `always`, `assume`,", "Close every `{`, `(` and `[`."),
    (M + "counts: { sum x } targets: { 0b10 } }", 1, 41, "unexpected character `0`", "Numbers are decimal"),
    (M + "count: { sum x } }", 1, 12, "unexpected `count`; expected `actions`, `always`, `assume`, `counts`,", "A module has the sections"),
    ("modul m {}", 1, 1, "unexpected `modul`; expected the end of the text, `import`, `inputs`,", "A file has"),
    ("", 1, 1, "there is no module", "Write `module NAME {...}`"),
    ("// caf\N{LATIN SMALL LETTER E WITH ACUTE}\n", 1, 7, "U+00E9", "Write the file in ASCII"),
    ("module valid { }", 1, 8, "`valid` is a keyword of the language and cannot be a name", "Use another name, such as valid_1."),
    (f"module {'a' * 65} {{ }}", 1, 8, "this name has 65 characters; at most 64 are allowed", "Shorten it"),
    # numbers
    (M + "counts: { sum x } targets: { 1 / 0 } }", 1, 41, "division of 1 by zero", "Check"),
    (M + "counts: { sum x } targets: { 99999999999999999999 } }", 1, 41, "this number has 20 digits, which is too large", "281474976710655"),
    (M + "counts: { sum x } targets: { 4294967295 * 4294967295 } }", 1, 41, "about 2^63", "largest count"),
    (M + f"counts: {{ sum x }} targets: {{ {'1 + ' * 60} 1 }} }}", 1, 41, "more than 50 operations", "Write its value."),
    (M + "counts: { sum x width n } targets: { 1 } }", 1, 34, "`n` is not a number", "Declare it: module NAME (n = 16)"),
    ("module m(n) { counts: { sum x } targets: { n } }", 1, 10, "`n` of module `m` has no value", "-P n=16"),
    (M + "counts: { sum x } targets: { 0 } }", 1, 41, "never reached (R3)", "Write `never`"),
    (M + "counts: { sum x - 1 } targets: { 1 } }", 1, 22, "a level count cannot go down or have a bound, because it stores no value", "Write `over cycles`"),
    (M + "counts: { sum 2 - x } targets: { 1 } }", 1, 22, "a level count cannot go down or have a bound, because it stores no value", "Write `over cycles`, or remove `-` and `at most`."),
    (M + "counts: { sum x at most 3 } targets: { 1 } }", 1, 22, "a level count cannot go down or have a bound, because it stores no value", "Write `over cycles`"),
    # ranges
    (M + "counts: { sum x[i] (i = 4 to 1) } targets: { 1 } }", 1, 32, "from 4 to 1 is empty", "Its end must not be less than its start."),
    (M + "counts: { sum x[i] (i = 1 to 4294967295) } targets: { 1 } }", 1, 32, "at most 1024", "Split it"),
    (M + "counts: { sum x[i] (i = 0 - 1 to 3) } targets: { 1 } }", 1, 32, "the range starts at -1", "Start at 0 or 1."),
    (M + "counts: { sum x[4000000000] } targets: { 1 } }", 1, 26, "at most 1024", "Split it"),
    (M + "counts: { sum x (i = 1 to 3) } targets: { 1 } }", 1, 29, "the index `i` is not used in its term", "Write NAME[i]"),
    (M + "inputs: { flag f[1 to 3] } counts: { sum f[4] } targets: { 1 } }", 1, 53, "`f` has elements 1 to 3, not 4", "range"),
    (M + "inputs: { flag f[1 to 3] } counts: { sum f } targets: { 1 } }", 1, 53, "`f` has elements 1 to 3, and no index says which one", "Write f[1]"),
    (
        M + "inputs: { stream s of 2 lanes of 8 bits } counts: { sum s.valid } targets: { 1 } actions: { stream s.data[3] } }",
        1, 111, "`s` has lanes 1 to 2, not 3", "Declare the lanes: stream NAME of 16 lanes of 8 bits.",
    ),
    # names
    (M + "counts: { sum other.done } targets: { 1 } }", 1, 26, "no module `other`", "There are: m"),
    (
        M + "counts: { sum x } targets: { 1 } actions: { pulse done } } module n { counts: { sum m.doen } targets: { 1 } }",
        1, 96, "module `m` does not drive `doen`", "Did you mean `done`?",
    ),
    (
        M + "counts: { sum x } targets: { 1 } actions: { pulse done } } module n { counts: { sum done } targets: { 1 } }",
        1, 96, "`done` is not declared; module `m` drives a signal of that name", "Write m.done",
    ),
    (M + "counts: { beats: sum x } targets: { 1 } actions: { on beast: pulse p } }", 1, 66, "no count `beast`", "`beats`?"),
    (M + "counts: { a: sum x; b: sum y } targets: { 1 } actions: { pulse p } }", 1, 69, "this action names no count, and there are 2 counts and 1 actions", "on a:"),
    (M + "counts: { sum x to big } targets: { bog: 1 } }", 1, 31, "no target `big`", "Did you mean `bog`?"),
    (M + "counts: { sum x } }", 1, 22, "no target for count", "targets: { never }"),
    (M + "counts: { sum x; sum y; sum z } targets: { 1; 2 } }", 1, 22, "3 counts and 2 targets", "`to TARGET`"),
    (M + "targets: { 1 } }", 1, 8, "counts nothing", "Add `counts"),
    (M + "counts: { sum x } targets: { 1 } actions: { clear y } }", 1, 62, "neither a count nor a flag", "count"),
    (M + "counts: { a: sum x; b: sum a } targets: { 1 } }", 1, 39, "`a` is a count; its value", "what its actions drive"),
    (M + "counts: { sum m } targets: { 1 } }", 1, 26, "`m` is a module, not a signal", "drives nothing"),
    (M + "counts: { a: sum x; a: sum y } targets: { 1 } }", 1, 32, "`a` is a count here and a count", "Rename"),
    ("module m { counts: { sum x } targets: { 1 } } module m { }", 1, 54, "already a module `m`", "another name"),
    ("use streamr as s; module streamer { }", 1, 5, "no module `streamr` in this file or its imports", "Did you mean `streamer`?"),
    ("use m(k = 1) as n; " + M + "counts: { sum x } targets: { j } }", 1, 7, "no parameter `k`", "There are: j"),
    ("use m as n with z = y; " + M + "counts: { sum x } targets: { 1 } }", 1, 17, "has no input `z`", "There are: x"),
    # kinds
    (M + "inputs: { stream s of 8 bits } counts: { sum s } targets: { 1 } }", 1, 57, "`s` is a stream", "Write s.valid"),
    (M + "inputs: { flag f } counts: { sum f.valid } targets: { 1 } }", 1, 45, "has no `.valid`", "declare it as a stream"),
    (M + "counts: { sum x.data } targets: { 1 } }", 1, 26, "`x` is a stream, and `sum` counts its beats", "Write x.valid"),
    (M + "counts: { sum x.valid } targets: { 1 } actions: { stream x.valid } }", 1, 69, "`x.valid` says whether there is a beat, and this position needs samples", "Write x.data"),
    (
        "inputs: { flag f } " + M + "inputs: { stream f of 8 bits } counts: { sum f.valid } targets: { 1 } }",
        1, 48, "declared differently at t.ca:1:16", "Inputs with the same name are one input: declare them alike, or rename",
    ),
    # widths
    (M + "counts: { sum x over cycles } targets: { 70000 } }", 1, 53, "does not fit in 16 bits", "Write `width 17`"),
    (M + "counts: { sum x over cycles width 49 } targets: { 1 } }", 1, 22, "is 49, outside 1 to 48", "Choose"),
    (M + "inputs: { stream s of 64 bits } counts: { sum s.valid } targets: { 1 } }", 1, 29, "width of `s` is 64", "1 to 48"),
    (M + "counts: { sum 300 over cycles width 8 } targets: { 1 } }", 1, 22, "can go up by 300", "Write `width 9`"),
    (M + "counts: { sum x } targets: { 1 } actions: { advance n modulo 1 } }", 1, 56, "modulo of number `n` is 1", "2 to"),
    # what cannot be reached
    (M + "counts: { sum x[i] (i = 1 to 3) } targets: { 4 } }", 1, 57, "target `target` of count `count` is 4, and the sum is at most 3: it is", "over cycles"),
    (M + "counts: { sum 5 + x } targets: { 3 } }", 1, 45, "target `target` of count `count` is 3, and the sum is at least 5: it is", "Raise the target"),
    (M + "counts: { sum 4 over cycles } targets: { 10 } }", 1, 53, "target `target` of count `count` is 10, and the count goes up by 4: it", "a multiple of 4"),
    (M + "counts: { sum x over cycles width 4 } targets: { 40 width 8 } }", 1, 61, "stays at 15", "Write `width 6`"),
    (
        "module m { counts: { sum n.b over cycles } targets: { 1 } actions: { pulse a } }"
        " module n { counts: { sum m.a over cycles } targets: { 1 } actions: { pulse b } }",
        1, 22, "count `m.count` never counts: nothing ever triggers `n.b`", "Start the chain with an external input.",
    ),
    (M + "counts: { sum x while go } targets: { 1 } actions: { set go } }", 1, 22, "count `m.count` never counts: nothing ever triggers `m.go`", "Start the chain with an external input."),
    # drivers
    (STREAM_TWICE, 1, 89, "`out` of module `m` has two drivers", "`as out_2`"),
    (M + "counts: { sum x } targets: { 1 } actions: { on count: pulse p; on count: set p } }", 1, 85, "two drivers", "`p_2`"),
    (M + "counts: { sum x + tick over cycles } targets: { 3 } actions: { pulse tick } }", 1, 22, "triggers itself", "another"),
    # streams
    (
        M + "counts: { a: sum x.valid } targets: { 1 } } module n { counts: { b: sum x.valid over cycles } targets: { 1 } }",
        1, 22, "by `n.b` of another module (R7)", "move both counts into one module (R26)",
    ),
    (
        "module m { counts: { sum n.out.valid + x.valid over cycles } targets: { 1 } actions: { stream x.data } }"
        " module n { counts: { sum m.out.valid over cycles } targets: { 1 } actions: { stream m.out.data } }",
        1, 8, "streams form a cycle: m -> n -> m (R7)", "Replace one with a flag or a pulse, which apply no backpressure.",
    ),
    (
        M + "counts: { sum x } targets: { 1 } actions: { pulse done } }"
        " module n { counts: { sum m.done over cycles } targets: { 2 } actions: { stream y.data } }",
        1, 96, "counts the pulse `m.done`, and module `n` can stall", "a module of its own",
    ),
    (
        "module m { counts: { sum x.valid over cycles } targets: { 1 } actions: { stream out.data } }",
        1, 74, "come from itself", "Use an external stream for one of them.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"), CASES, ids=[case[3][:50] for case in CASES]
)
def test_refused_with_place_reason_and_hint(refused, text, line, column, message, hint):
    first = refused(text)[0]
    assert message in first.message
    assert hint in first.hint
    assert (first.file, first.line, first.column) == ("t.ca", line, column)


def test_several_errors_of_a_file_are_printed_at_once(refused):
    text = """module m {
  counts: { sum x[i] (i = 3 to 1); sum y over cycles }
  targets: { 0; 1 / 0 }
  actions: { on cuont: pulse p }
}
"""
    assert [(each.line, each.message.split()[0]) for each in refused(text)] == [
        (2, "the"),
        (3, "a"),
        (3, "division"),
    ]
    syntax = "module m {\n counts: { sum ; sum y over cycle }\n targets: { 1 1 }\n actions: { pluse p }\n}\n"
    assert [each.line for each in refused(syntax)] == [2, 2, 3, 4]


def test_an_error_in_a_range_is_printed_once(refused):
    text = "module m { counts: { sum x[i].valid (i = 1 to 9) } targets: { 1 } actions: { stream y[i].valid (i = 1 to 9) } }"
    assert len(refused(text)) == 1


def test_missing_files_and_circles(tmp_path):
    (tmp_path / "a.ca").write_text('import "b.ca";\nuse b as c;')
    (tmp_path / "b.ca").write_text('\n  import "a.ca";\nmodule b { counts: { sum x } targets: { 1 } }')
    with pytest.raises(
        CountActionError,
        match=r"b\.ca:2:10: these files import each other in a cycle: a\.ca -> b\.ca -> a\.ca",
    ):
        load(tmp_path / "a.ca")
    with pytest.raises(CountActionError, match=r"none\.ca:1:1: there is no file"):
        load(tmp_path / "none.ca")
    with pytest.raises(CountActionError, match="is a folder"):
        load(tmp_path)
    (tmp_path / "c.ca").write_text(
        'import "gone.ca";\nimport "";\nimport "/dev/zero";\nimport "' + "x" * 5000 + '";'
    )
    with pytest.raises(CountActionError) as caught:
        load(tmp_path / "c.ca")
    assert [each.line for each in caught.value.errors] == [1, 2, 3, 4]


def test_an_error_of_an_imported_file_is_printed_where_it_is(tmp_path):
    (tmp_path / "a.ca").write_text('import "b.ca";')
    (tmp_path / "b.ca").write_text("module b {\n counts: { sum }\n}")
    with pytest.raises(CountActionError, match=r"b\.ca:2:16: unexpected `}`"):
        load(tmp_path / "a.ca")


def test_unknown_parameters_from_outside(refused):
    text = "module m { counts: { sum x[i] (i = 1 to num_DACs) } targets: { num_DACs } }"
    assert refused(text, parameters={"num_DACS": 4}) == (
        Diagnostic(
            "t.ca",
            1,
            1,
            "no module has a parameter `num_DACS`, but the caller gives it a value",
            "Did you mean `num_DACs`?",
        ),
    )


def test_a_misspelt_input_is_a_warning():
    text = "module m { counts: { sum DAC[i].valid (i = 1 to 2) } targets: { 2 } actions: { stream DCA[i].data (i = 1 to 2) } }"
    (warning,) = parse_text(text, "t.ca").warnings
    assert warning.message == "`DCA` is not declared, and is similar to `DAC`"
    other = text.replace("DCA", "ADC_2")
    (warning,) = parse_text(other, "t.ca").warnings
    assert warning.message == "`out` sends samples of `ADC_2`, whose beats `count` does not count"


def test_overshoot_is_a_warning_when_it_cannot_be_decided():
    text = "module m { counts: { sum x.valid + y.valid over cycles } targets: { 5 } }"
    (warning,) = parse_text(text, "t.ca").warnings
    assert "can go up by 2 in one cycle and jump over its target `target`" in warning.message
    assert parse_text("module m { counts: { sum 4 over cycles } targets: { 12 } }", "t.ca").warnings == ()
    assert (
        parse_text("module m { counts: { sum x.valid over cycles } targets: { 5 } }", "t.ca").warnings == ()
    )


def test_a_circle_of_pulses_is_a_warning():
    text = """module m { counts: { sum start + n.b } targets: { 1 } actions: { pulse a } }
    module n { counts: { sum m.a } targets: { 1 } actions: { pulse b } }"""
    (warning,) = parse_text(text, "t.ca").warnings
    assert (
        "in a circle: m.count -> n.count -> m.count" in warning.message
        or "n.count -> m.count -> n.count" in warning.message
    )


MEGABYTE = 1_000_000
NOISE = {
    "letters": ("", "x"),
    "braces": ("", "{"),
    "brackets": ("module m { counts: { sum x } targets: { ", "("),
    "minus": ("module m { counts: { sum x } targets: { ", "-"),
    "items": ("module m { counts: { ", "sum x; "),
    "wrong items": ("module m { counts: { ", "sum; "),
    "digits": ("module m { targets: { ", "9"),
    "lines": ("", "\n"),
    "bytes": ("", "".join(chr((n * 7919) % 128) for n in range(128))),
    "not ASCII": ("", "\N{GREEK SMALL LETTER ALPHA}\n"),
}
"""How a text begins, and what follows again and again."""


def noise(kind, length):
    beginning, again = NOISE[kind]
    return (beginning + again * (length // len(again) + 1))[:length]


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOISE)
def test_noise_is_refused_at_a_line_and_in_few_words(tmp_path, kind):
    (tmp_path / "noise.ca").write_text(noise(kind, MEGABYTE // 10))
    with pytest.raises(CountActionError) as refused:
        load(tmp_path / "noise.ca")
    assert refused.value.errors[0].line >= 1
    assert len(str(refused.value)) < 20_000


@pytest.mark.long
@pytest.mark.parametrize("kind", NOISE)
def test_the_cost_of_noise_grows_with_its_length_and_not_with_its_square(tmp_path, kind):
    def refuse(length):
        (tmp_path / "noise.ca").write_text(noise(kind, length))
        with pytest.raises(CountActionError):
            load(tmp_path / "noise.ca")

    assert ratio_of_costs(refuse, MEGABYTE // 16, MEGABYTE) < 64


MANY = "module m { counts: { for a = 1 to 1000: sum x[i] (i = 1 to 1000) over cycles } targets: { 1 } }"


@pytest.mark.slow
def test_absurdly_many_things_are_refused(refused):
    assert "more than 65536 terms" in refused(MANY)[0].message


FLAG = "module m { counts: { a: sum on; b: sum off } targets: { 1 } actions: { on a: set f; on b: clear f } }"


def test_a_flag_whose_set_and_clear_meet_is_a_warning():
    (warning,) = parse_text(FLAG, "t.ca").warnings
    assert warning.message == (
        "flag `f` is set and cleared when `a` and `b` fire in one cycle, and is 1 then: the clear is lost (R9)"
    )
    assert warning.hint == "Write `set f wins` if that is intended, `clear f wins` if not."
    assert parse_text(FLAG.replace("set f", "set f wins"), "t.ca").warnings == ()
    assert parse_text(FLAG.replace("clear f", "clear f wins"), "t.ca").warnings == ()


def test_a_set_and_a_clear_that_never_meet_are_no_warning():
    assert (
        parse_text(FLAG.replace("on; b: sum off", "on while g; b: sum off while not g"), "t.ca").warnings
        == ()
    )


def test_a_winning_set_is_the_same_hardware_and_is_written_back():
    said, silent = (
        parse_text(FLAG.replace("set f", each), "t.ca").datapath for each in ("set f wins", "set f")
    )
    assert said.digest == silent.digest
    assert "set f wins" in unparse(said)
    assert parse_text(unparse(said), "t.ca").datapath == said


def test_set_and_clear_cannot_both_win():
    text = FLAG.replace("set f", "set f wins").replace("clear f", "clear f wins")
    with pytest.raises(CountActionError, match="both the set and the clear of flag `f` win"):
        parse_text(text, "t.ca")
