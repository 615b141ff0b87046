"""Formulas: what a text with comparisons, `or`, `max`, `min` and arithmetic means, and what is refused of it."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")

from fpga.count_action import parse_text
from fpga.count_action.language.unparse import unparse
from fpga.count_action.model import ActionKind, Condition, Operation, Ref

INPUTS = """inputs: {
  stream x of 4 lanes of 8 bits signed; stream y of 6 bits; flag go; number level of 4 bits
} """


def module_of(count="sum x.valid over cycles", action="pulse p", targets="one: 1", head="m"):
    text = f"{INPUTS} module {head} {{ counts: {{ n: {count} }} targets: {{ {targets} }} actions: {{ {action} }} }}"
    checked = parse_text(text, "t.ca")
    assert parse_text(unparse(checked.datapath), "t.ca").datapath == checked.datapath
    return checked.datapath.modules[0]


X1, X2 = Ref("x"), Ref("x", lane=1)


@pytest.mark.parametrize(
    ("condition", "meaning"),
    [
        ("x.data[1] == 3", Operation("==", (X1, 3))),
        ("go or level >= 2", Operation("or", (Ref("go"), Operation(">=", (Ref("level"), 2))))),
        ("n < 5", Operation("<", (Operation("count", (Ref("n", "m"),)), 5))),
        ("n + 1 != one", Operation("!=", (
            Operation("+", (Operation("count", (Ref("n", "m"),)), 1)), Operation("target", (Ref("one", "m"),))))),
        ("max(x.data[i] (i = 1 to 2), -4) > 0", Operation(">", (
            Operation("max", (X1, X2, Operation("-", (0, 4)))), 0))),
        ("(go or level) or y.valid", Operation("or", (
            Operation("or", (Ref("go"), Ref("level"))), Operation("valid", (Ref("y"),))))),
        ("x.data[1][7:4] == 0xF", Operation("==", (Operation("slice", (X1, 7, 4)), 15))),
        ("level[3:3] << 1 != (n + one)[2:1]", Operation("!=", (
            Operation("<<", (Operation("slice", (Ref("level"), 3, 3)), 1)),
            Operation("slice", (Operation("+", (
                Operation("count", (Ref("n", "m"),)), Operation("target", (Ref("one", "m"),)))), 2, 1))))),
        ("level + 1 >> 2 * 1 < 3", Operation("<", (Operation(">>", (Operation("+", (Ref("level"), 1)), 2)), 3))),
        ("concat(x.data[i][3:0] (i = 1 to 2), go, (0)[1:0]) > 0x1f", Operation(">", (
            Operation("concat", (
                Operation("slice", (X1, 3, 0)), Operation("slice", (X2, 3, 0)),
                Operation("slice", (Ref("go"), 0, 0)), Operation("slice", (0, 1, 0)))), 31))),
        ("min(x.data) <= 1", Operation("<=", (Operation("min", tuple(Ref("x", lane=k) for k in range(4))), 1))),
    ],
)  # fmt: skip
def test_a_condition_may_be_a_formula(condition, meaning):
    module = module_of(f"sum x.valid over cycles while {condition}")
    assert module.values == (meaning,)
    assert module.counts[0].gate == (Condition(Ref("#0", "m")),)


def test_a_slice_depends_on_indices_and_parameters():
    module = module_of(action="stream level[k * i - 1:k * (i - 1)] (i = 1 to 2)", head="m (k = 2)")
    assert module.values == (
        Operation("slice", (Ref("level"), 1, 0)),
        Operation("slice", (Ref("level"), 3, 2)),
    )
    assert [(each.width, each.signed) for each in module.actions] == [(2, False)]


def test_an_index_alone_is_a_lane_as_it_was():
    module = module_of(action="stream x.data[1], x.data[2][7:0]")
    assert module.actions[0].refs == (X1, Ref("#0", "m"))
    assert module.values == (Operation("slice", (X2, 7, 0)),)


def test_concatenated_values_have_the_widths_that_they_declare():
    module = module_of(action="stream concat(x.data, level, level + 1) as z")
    widths = [each.operands[1] + 1 for each in module.values[0].operands]
    assert widths == [8, 8, 8, 8, 4, 5]
    assert (module.actions[0].width, module.actions[0].signed) == (41, False)


def test_all_parts_of_an_and_are_conditions_of_their_own():
    module = module_of("sum x.valid over cycles while not go and level and (y.data == 2 and not y.valid)")
    assert module.values == (Operation("==", (Ref("y"), 2)),)
    gate = module.counts[0].gate
    assert [(each.ref.name, each.negated) for each in gate] == [
        ("go", True), ("level", False), ("#0", False), ("y", True),
    ]  # fmt: skip


def test_samples_are_worked_out_and_the_beat_has_the_bits_that_they_need():
    module = module_of(action="stream max(x.data[i], 0) (i = 1 to 2), x.data[1] - y.data as z")
    assert module.values == (
        Operation("max", (X1, 0)),
        Operation("max", (X2, 0)),
        Operation("-", (X1, Ref("y"))),
    )
    (action,) = module.actions
    assert (len(action.refs), action.width, action.signed) == (3, 9, True)  # -128 - 63 to 127


def test_a_sum_may_take_away():
    module = module_of(action="emit sum x.data[1] - x.data[2] - (x.data[i] if go else 0) (i = 3 to 4)")
    lanes = [Ref("x", lane=k) for k in range(4)]
    assert module.actions[0].refs[0] == lanes[0]
    assert module.values == (
        Operation("-", (0, lanes[1])),
        *(Operation("-", (0, Operation("if", (Ref("go"), lane, 0)))) for lane in lanes[2:]),
    )


def test_the_largest_sample_and_its_index():
    action = module_of(action="emit max x.data with index shift 1 width 12 as best").actions[0]
    assert (action.kind, action.reduction, action.with_index) == (ActionKind.EMIT, "max", True)
    assert (action.shift, action.width, action.signed, len(action.refs)) == (1, 12, True, 4)


def test_a_parameter_that_is_a_target_means_the_target_and_another_its_number():
    module = module_of(
        "sum x.valid over cycles while n < k and n != j", targets="k: k", head="m (k = 7, j = 2)"
    )
    count = Operation("count", (Ref("n", "m"),))
    target = Operation("target", (Ref("k", "m"),))
    assert module.values == (Operation("<", (count, target)), Operation("!=", (count, 2)))


def test_new_words_are_names_where_they_cannot_be_words():
    text = """module max (index = 3) {
      inputs: { stream or of index lanes of 8 bits; flag min; flag if; flag else; flag last; flag table }
      counts: { index: sum or.valid over cycles while if and else and not min; max: sum last + table }
      targets: { max: 2; or: 1 }
      actions: { on index: stream or.data as index_2; on max: set with; on max: set if_1; on max: pulse index_3 }
    }"""
    module = parse_text(text, "t.ca").datapath.modules[0]
    assert module.values == ()
    assert [each.ref.name for each in module.counts[0].gate] == ["if", "else", "min"]


def test_words_of_choices_buffers_and_properties_are_names_elsewhere():
    text = """module merge (turns = 3) {
      inputs: { stream by of turns lanes of 8 bits; flag until; flag priority; flag always; flag assume }
      counts: { buffered: sum by.valid over cycles while until and not priority; by_1: sum always + assume }
      targets: { turns_1: 2; assume_1: 1 }
      actions: { on buffered: stream by.data as until_1; on by_1: pulse always_1; on by_1: set buffered_1 }
    }"""
    datapath = parse_text(text, "t.ca").datapath
    (module,) = datapath.modules
    assert [each.ref.name for each in module.counts[0].gate] == ["until", "priority"]
    assert (module.counts[0].order, module.claims, datapath.input("by").buffered) == ("", (), False)
    assert "order" not in datapath.to_json()  # the digest of an old text is what it was


def test_properties_change_no_digest():
    text = "module m { counts: { sum x over cycles } targets: { 3 } %s }"
    plain, stated = (
        parse_text(text % end, "t.ca").datapath for end in ("", "never { count > 2 } assume: { x or not x }")
    )
    assert plain.digest == stated.digest
    assert plain != stated


def test_a_declared_flag_is_a_flag_even_if_a_target_has_its_name():
    module = parse_text(
        "module m { inputs: { flag go } counts: { n: sum x.valid over cycles while go } targets: { go: 3 } }",
        "t.ca",
    ).datapath.modules[0]
    assert module.counts[0].gate == (Condition(Ref("go")),)
    assert module.values == ()


M = "module m { inputs: { stream x of 2 lanes of 8 bits; flag f } counts: { n: sum x.valid over cycles"


@pytest.mark.parametrize(
    ("rest", "message", "hint"),
    [
        (" while x.data == 3 } targets: { 1 } }", "`x.data` has 2 lanes, and no index", "Write x.data[1]"),
        (" while relu(x.data[1]) > 1 } targets: { 1 } }", "`relu` is not a function", "max(x, 0)"),
        (" while x.last } targets: { 1 } }", "the beats of `x` have no `last`", "with last and keep"),
        (" while abs(f) } targets: { 1 } }", "`abs` is not a function", "max(a, b, ...)"),
        (" while x == 3 } targets: { 1 } }", "`x` is a stream, and this position needs its samples", "Write x.data"),
        (" while max(x.data[i] (i = 1 to 0)) > 1 } targets: { 1 } }", "`max` has no operands", "Give it one more"),
        (" while f = 1 } targets: { 1 } }", "unexpected `=`", "Compare with `==`"),
        (" while m.k > 1 } targets: { 1 } }", "`m` does not drive `k`", "drives nothing"),
    ],
)  # fmt: skip
def test_refused(rest, message, hint):
    from fpga.count_action import CountActionError

    with pytest.raises(CountActionError) as caught:
        parse_text(M + rest, "t.ca")
    assert message in caught.value.errors[0].message
    assert hint in caught.value.errors[0].hint


@pytest.mark.parametrize(
    ("condition", "message"),
    [("f > 3", "never holds: 0 to 1 is compared with 3"), ("x.data[1] >= 0", "always holds: 0 to 255")],
)
def test_a_comparison_that_is_decided_is_warned_of(condition, message):
    checked = parse_text(f"{M} while {condition} }} targets: {{ 1 }} }}", "t.ca")
    assert message in " ".join(each.message for each in checked.warnings)


TABLE = "tables: { lengths[1 to 3]: 4, never, 9 width 6 }"


def in_table(count, more="actions: { advance place modulo 3 }"):
    text = f"{INPUTS} module m {{ counts: {{ n: {count} }} {TABLE} {more} }}"
    checked = parse_text(text, "t.ca")
    assert parse_text(unparse(checked.datapath), "t.ca").datapath == checked.datapath
    return checked.datapath.modules[0]


def entry(place):
    return Operation("target", (Ref(f"lengths_{place}", "m"),))


def test_a_target_from_a_table():
    module = in_table("sum x.valid over cycles to lengths[place + 1]")
    assert [(each.name, each.reset, each.width) for each in module.targets] == [
        ("lengths_1", 4, 6), ("lengths_2", 0, 6), ("lengths_3", 9, 6),
    ]  # fmt: skip
    index = Operation("-", (Operation("+", (Ref("place", "m"), 1)), 1))
    assert module.values == (Operation("table", (index, entry(1), entry(2), entry(3))),)
    assert (module.counts[0].aim, module.counts[0].target) == (Ref("#0", "m"), "lengths_1")


def test_an_entry_at_a_known_index_is_a_value_too():
    module = in_table("sum x.valid over cycles to lengths[3] while x.data[1] < lengths[2]")
    assert module.values == (
        Operation("table", (0, entry(3))),
        Operation("<", (X1, Operation("table", (0, entry(2))))),
    )


def test_names_of_tables_are_names_elsewhere():
    text = """module last (table = 2) { inputs: { flag lengths; flag tables }
      counts: { table: sum lengths + tables } targets: { table } actions: { pulse entries } }"""
    assert parse_text(text, "t.ca").datapath.modules[0].targets[0].name == "table"


@pytest.mark.parametrize(
    ("count", "message"),
    [
        ("sum x.valid over cycles to lengths[4]", "`lengths` has entries 1 to 3, not 4"),
        ("sum x.valid over cycles to max(lengths, 3)", "`lengths` is a table, and no index says which entry"),
        ("sum x.valid over cycles to lengths[level * 2]", "this index applies `*` to a signal"),
        ("sum x.valid over cycles to max(level, 2)", "neither a target nor a formula of targets"),
        ("sum x.valid over cycles", "no target for count"),
    ],
)
def test_tables_refused(count, message):
    from fpga.count_action import CountActionError

    with pytest.raises(CountActionError) as caught:
        in_table(count, "")
    assert message in caught.value.errors[0].message


def test_how_a_target_is_reached_is_said_by_two_words_that_take_no_name_away():
    text = """module m (at = 2, exactly = 9) { counts: { sum least over cycles;
      sum x over cycles; sum y over cycles; sum z over cycles; sum w over cycles }
      targets: { at; exactly width 8; exactly at; at least exactly; big: at least 70 carry } }"""
    targets = parse_text(text, "t.ca").datapath.modules[0].targets
    assert [(each.name, each.reset, each.at_least, each.carry) for each in targets] == [
        ("at", 2, False, False), ("exactly", 9, False, False), ("target_3", 2, False, False),
        ("target_4", 9, True, False), ("big", 70, True, True),
    ]  # fmt: skip


PAIR = """module m {{ inputs: {{ stream x[1 to 2] of 8 bits }} counts: {{ n: {count} }} targets: {{ {target} }}
  actions: {{ {action} }} }}"""
SEND_BOTH = "stream x[i].data (i = 1 to 2)"
BOTH = "sum x[i].valid (i = 1 to 2)"


@pytest.mark.parametrize(
    ("count", "target", "action", "messages"),
    [
        (BOTH, "1", SEND_BOTH, ["never fires again once beats of x (bit 0), x (bit 1) wait together"]),
        (BOTH, "at least 1", SEND_BOTH, ["fires with 1 of 2 beats"]),
        (BOTH, "at least 1", "pulse p", []),
        (BOTH, "2", SEND_BOTH, []),
        (
            "sum x[1].valid over cycles while f and not f",
            "2",
            "pulse p",
            ["waits for `f` to be 1 and 0 at once"],
        ),
        (f"{BOTH} over cycles", "5", "pulse p", ["jump over its target"]),
        (f"{BOTH} over cycles", "at least 5", "pulse p", []),
        (
            "sum y[i] (i = 1 to num_DACs)",
            "num_DAC",
            "pulse p",
            ["`num_DAC` is assumed to be a parameter, and is similar"],
        ),
    ],
)
def test_warned_of(count, target, action, messages):
    checked = parse_text(PAIR.format(count=count, target=target, action=action), "t.ca")
    shown = [each.message for each in checked.warnings if "is not used" not in each.message]
    assert [any(message in each for each in shown) for message in messages] == [True] * len(messages)
    assert bool(shown) == bool(messages)


@pytest.mark.parametrize(
    ("first", "warned"),
    [
        ("sum x.valid to one", True),
        ("sum x.valid to one while f", False),
        ("sum x.valid + y.valid to two", False),
    ],
)
def test_a_count_that_another_leaves_nothing(first, warned):
    text = f"""module m {{ inputs: {{ stream x of 8 bits; stream y of 8 bits; flag f }}
      counts: {{ a: {first}; b: sum x.valid to one }} targets: {{ one: 1; two: 2 }}
      actions: {{ on a: stream x.data as high; on b: stream x.data as low }} }}"""
    messages = [each.message for each in parse_text(text).warnings]
    assert any("`b` never fires: `a` precedes it" in each for each in messages) == warned


@pytest.mark.parametrize(
    ("stores", "lost"),
    [
        ("on a: store 1 as k by priority; on b: store 0 as k by priority", []),
        ("on a: store 1 as k by priority; on a: store 0 as k by priority", ["k"]),
        ("on a: store 1 in w[1] by priority; on b: store 1 in w[2] by priority", []),
        ("for i = 0 to 1: on a: store i in w[i] by priority", ["w"]),
        ("on a: store 1 in w[1] by priority; on a: store 1 in v[2] by priority", []),
    ],
)
def test_a_store_that_another_one_on_its_count_precedes(stores, lost):
    text = f"""module m {{ inputs: {{ flag f; flag g }} memory w: 4 of 4 bits; memory v: 4 of 4 bits;
      counts: {{ a: sum f; b: sum g }} targets: {{ 1 }}
      actions: {{ on a: read w[0] as word; on a: read v[0] as other; {stores} }} }}"""
    messages = [each.message for each in parse_text(text).warnings]
    assert messages == [
        f"this store in `{name}` is always lost: one on the same count `a` precedes it" for name in lost
    ]


@pytest.mark.parametrize(
    ("second", "warned"),
    [
        ("sum x.valid to one", True),
        ("sum x.valid + y.valid to two", True),
        ("sum x.valid + y.valid to one", False),
        ("sum x.valid + f to one", False),
        ("sum 1 + x.valid to one", False),
    ],
)
def test_a_count_that_reaches_its_target_without_the_beats_that_another_takes(second, warned):
    text = f"""module m {{ inputs: {{ stream x of 8 bits; stream y of 8 bits; flag f }}
      counts: {{ a: sum x.valid to one; b: {second} }} targets: {{ one: 1; two: 2 }}
      actions: {{ on a: set g; on b: clear g }} }}"""
    messages = [each.message for each in parse_text(text).warnings]
    assert any("`b` never fires: `a` precedes it" in each for each in messages) == warned
    assert not any("never fires again" in each or "in one cycle" in each for each in messages)
