"""The timed processor of version 1, by facts of its firmware worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from sim.twins.rfsoc.processor import ProgramError
from sim.twins.rfsoc.tproc_v1 import TprocV1, instructions

OPCODES = {instruction.name: opcode for opcode, instruction in instructions.INSTRUCTIONS.items()}
AND, NOT, LEFT, RIGHT, ADD, SUBTRACT, MULTIPLY = 0, 3, 4, 5, 8, 9, 10
NO_INPUT = {"read_input": lambda port, half, tick: pytest.fail("nothing is read here")}


def word(name, *, page=0, channel=0, oper=0, a=0, b=0, c=0, d=0, e=0, f=0, g=0, imm=0):
    """Return an instruction of 64 bits; `imm` with sign."""
    registers = a << 41 | b << 36 | c << 31 | d << 26 | e << 21 | f << 16 | g << 11
    return OPCODES[name] << 56 | page << 53 | channel << 50 | oper << 46 | registers | imm & 0x7FFFFFFF


END = word("end")


def processor(*program, dmem_words=64, **limits):
    made = TprocV1(1024, dmem_words, **limits)
    made.load_bin_program(np.array(program, np.uint64))
    return made


def run(*program, **limits):
    return processor(*program, **limits).run(**NO_INPUT)


def stored(*program):
    """Return what the program stores in memory, one word after the other, with sign."""
    return run(*program, END).counter_events["value"].tolist()


def times(*program):
    """Return the time when its words to channels take effect, in the order of time."""
    result = run(*program, END)
    return sorted([*result.port_writes["time"].tolist(), *result.pin_events["time"].tolist()])


# -------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize(
    ("oper", "left", "right", "result"),
    [
        (ADD, 2**30 - 1, 2**30 - 1, 2**31 - 2),
        (ADD, 5, -7, -2),
        (SUBTRACT, 5, 7, -2),
        (MULTIPLY, 300, -200, -60000),
        (MULTIPLY, 0x1_0003, 0x2_0005, 15),  # only the lower 16 bits of each
        (MULTIPLY, 0x8000, 0xFFFF, 32768),  # -32768 x -1
        (AND, -1, 0x1234, 0x1234),
        (1, 0x0F0, 0x00F, 0x0FF),
        (2, 0x0FF, 0x00F, 0x0F0),
        (NOT, 77, 0, -1),  # of the right side; the left one is of no account
        (LEFT, 1, 31, -(2**31)),
        (LEFT, 1, 33, 2),  # the lowest five bits
        (RIGHT, -1, 28, 15),  # filled with zeros
        (7, 1, 1, 0),  # operations that are none
        (13, 1, 1, 0),
    ],
)
def test_arithmetic_of_the_unit(oper, left, right, result):
    by_immediate = [word("regwi", a=1, imm=left), word("mathi", oper=oper, a=2, b=1, imm=right)]
    by_register = [word("regwi", a=3, imm=right), word("bitw", oper=oper, a=4, b=1, c=3)]
    show = [word("memwi", c=2), word("memwi", c=4)]
    assert stored(*by_immediate, *by_register, *show) == [result, result]


def test_addition_wraps_at_32_bits():
    double = word("math", oper=ADD, a=1, b=1, c=1)
    assert stored(word("regwi", a=1, imm=2**30 - 1), double, double, word("memwi", c=1)) == [-4]


@pytest.mark.parametrize("page", range(8))
def test_register_0_stays_zero_on_each_page(page):
    write = word("regwi", page=page, a=0, imm=9)
    assert stored(write, word("memwi", page=page, c=0)) == [0]


def test_pages_do_not_touch_each_other():
    fill = [word("regwi", page=page, a=31, imm=page + 10) for page in range(8)]
    show = [word("memwi", page=page, c=31) for page in range(8)]
    assert stored(*fill, *show) == list(range(10, 18))


def test_addresses_of_data_memory_count_modulo_its_size():
    result = run(word("regwi", a=1, imm=5), word("memwi", c=1, imm=64 + 3), word("memw", c=1, b=1), END)
    assert result.counter_events["address"].tolist() == [3, 5]


def test_a_loop_counter_of_n_minus_1_makes_n_passes():
    body = [word("memwi", c=1), word("loopnz", oper=ADD, a=1, b=1, imm=1)]
    assert stored(word("regwi", a=1, imm=3), *body) == [3, 2, 1, 0]


# ----------------------------------------------------------------------------------------------- time
@pytest.mark.parametrize(
    ("ticks", "instruction"),
    [
        (2, word("regwi", a=1)),
        (2, word("pushi", a=1)),
        (2, word("memwi")),
        (2, word("memw")),
        (2, word("read", a=1, channel=5)),
        (3, word("synci")),
        (3, word("sync")),
        (3, word("loopnz", oper=ADD, imm=1)),
        (4, word("memri", a=1)),
        (4, word("memr", a=1)),
        (4, word("seti")),
        (4, word("setb")),
        (4, word("condj", oper=5, imm=1)),
        (5, word("condj", oper=4, imm=1)),
        (5, word("mathi", a=1, oper=ADD)),
        (5, word("bitw", a=1)),
        (7, word("waiti")),
        (7, word("wait")),
    ],
)
def test_what_an_instruction_takes(ticks, instruction):
    result = run(instruction, word("memwi", imm=9), END)
    first_decoding, storing = 1, 2
    at_9 = result.counter_events[result.counter_events["address"] == 9]
    assert at_9["time"].tolist() == [first_decoding + ticks + storing]
    assert result.end_tick == first_decoding + ticks + storing + 1


def test_a_loop_back_takes_6_ticks():
    result = run(
        word("regwi", a=1, imm=2), word("memwi", c=1), word("loopnz", oper=ADD, a=1, b=1, imm=1), END
    )
    assert result.counter_events["time"].tolist() == [5, 5 + 8, 5 + 16]


def test_popi_takes_4_ticks():
    result = run(word("pushi", b=1, a=1), word("popi", a=1), word("memwi"), END)
    assert result.counter_events["time"].tolist() == [1 + 2 + 4 + 2]


def test_words_take_effect_at_their_time_after_the_offset():
    seti = word("seti", channel=1, imm=40)
    assert times(word("synci", imm=100), seti, word("synci", imm=1000), seti) == [140, 1140]


def test_a_register_gives_time_and_offset():
    program = [word("regwi", a=1, imm=500), word("sync", c=1), word("set", channel=3, c=1)]
    assert times(*program) == [1000]


def test_words_for_one_time_follow_each_other_every_3_ticks():
    assert times(*[word("seti", channel=2, imm=500)] * 4) == [500, 503, 506, 509]


def test_channels_do_not_wait_for_each_other():
    assert times(*[word("seti", channel=channel, imm=500) for channel in range(8)]) == [500] * 8


def test_a_word_whose_time_has_passed_takes_effect_at_once():
    # waiti: decoded at 1, done at 1000, next decoded 3 later; seti enters the queue 2 later, comes out 2 later
    result = run(
        word("waiti", imm=1000), word("seti", channel=1, imm=10), word("seti", channel=1, imm=2000), END
    )
    assert result.port_writes["time"].tolist() == [1007, 2000]


def test_wait_lasts_until_its_channel_has_done_what_was_sent_before():
    program = [word("seti", channel=1, imm=700), word("waiti", channel=1, imm=5), word("memwi"), END]
    assert run(*program).counter_events["time"].tolist() == [
        700 + 3 + 3 + 2
    ]  # queue, then on after 3, then stored
    elsewhere = [word("seti", channel=1, imm=700), word("waiti", channel=2, imm=5), word("memwi"), END]
    assert run(*elsewhere).counter_events["time"].tolist() == [1 + 4 + 7 + 2]


def test_a_full_queue_stops_the_program_until_the_oldest_word_leaves():
    """Fifteen words wait in the queue and one beside it: the seventeenth enters when the first has gone."""
    sixteen = [word("seti", channel=1, imm=10_000)] * 16
    assert run(*sixteen, word("memwi"), END).counter_events["time"].tolist() == [1 + 16 * 4 + 2]
    # the first takes effect at 10,000, the second leaves the queue 3 later; fetch, decoding, storing
    assert run(*sixteen, sixteen[0], word("memwi"), END).counter_events["time"].tolist() == [10_003 + 2 + 2]


def test_a_negative_time_is_far_in_the_future():
    assert times(word("seti", imm=-1)) == [2**32 - 1]


@pytest.mark.parametrize(
    ("passes", "offset"),
    [
        (2**15 + 2, 2**47 + 2**33 - 2**15 - 2),
        (2**16 + 1, 2**32 - 2**16 - 1),  # of 2**48 + that
    ],
)
def test_times_wrap_at_48_bits(passes, offset):
    loop = [word("synci", imm=-1), word("loopnz", oper=ADD, a=1, b=1, imm=1)]
    assert times(word("regwi", a=1, imm=passes - 1), *loop, word("seti")) == [offset]


# -------------------------------------------------------------------------------------------- outputs
def test_a_wide_word_has_160_bits_and_a_narrow_one_32():
    fill = [word("regwi", a=number, imm=number * 11) for number in range(1, 7)]
    wide = word("set", channel=4, c=6, b=1, d=2, e=3, f=4, g=5)
    result = run(*fill, wide, word("seti", channel=5, b=1, imm=90), END)
    assert result.port_writes["port"].tolist() == [4, 5]
    assert result.port_writes["words"].tolist() == [[11, 22, 33, 44, 55, 0], [11, 0, 0, 0, 0, 0]]


def test_words_to_data_ports_are_levels_of_pins():
    high = [word("regwi", a=1, imm=1 << 14), word("seti", b=1, imm=100), word("seti", imm=110)]
    result = run(*high, word("seti", channel=7, b=1, imm=50), END, data_ports={0, 7})
    assert len(result.port_writes) == 0
    assert result.pin_events.tolist() == [(0, 7, 50, 1 << 14), (0, 0, 100, 1 << 14), (0, 0, 110, 0)]


def test_events_are_in_the_order_of_their_times():
    result = run(*[word("seti", channel=1 + n % 7, imm=900 - 20 * n) for n in range(30)], END)
    assert len(result.port_writes) == 30
    assert (np.diff(result.port_writes["time"]) >= 0).all()


def test_values_in_memory_have_a_sign():
    made = processor(word("regwi", a=1, imm=-3), word("memwi", c=1, imm=2), END)
    assert made.run(**NO_INPUT).counter_events["value"].tolist() == [-3]
    assert made.read_mem("dmem", 3).tolist() == [0, 0, -3]


def test_inputs_are_read_by_port_half_and_tick():
    asked = []

    def read(port, half, tick):
        asked.append((port, half, tick))
        return -5 - port

    made = processor(
        word("read", channel=0, oper=5, a=1),
        word("read", channel=3, oper=10, a=2),
        word("read", channel=4, oper=10, a=3),
        *[word("memwi", c=register) for register in (1, 2, 3)],
        END,
    )
    assert made.run(read).counter_events["value"].tolist() == [-5, -8, 0]
    assert asked == [(0, 0, 2), (3, 1, 4)]


def test_who_answers_a_read_sees_what_was_sent_before():
    made = processor(
        word("seti", channel=1, imm=300),
        word("read", a=1),
        word("seti", channel=1, imm=400),
        word("memwi"),
        END,
    )
    seen = []

    def read(port, half, tick):
        seen.append(made.collect_events())
        return 0

    complete = made.run(read)
    assert seen[0].port_writes["time"].tolist() == [300]
    assert seen[0].end_tick == 5
    assert complete.port_writes["time"].tolist() == [300, 400]
    with pytest.raises(ProgramError, match="no program is running"):
        made.collect_events()


# ------------------------------------------------------------------------------- what outlives a run
def test_registers_and_stack_hold_until_reset():
    made = processor(word("mathi", oper=ADD, a=1, b=1, imm=1), word("pushi", b=1), word("memwi", c=1), END)
    assert [made.run(**NO_INPUT).counter_events["value"].tolist() for _ in range(3)] == [[1], [2], [3]]
    made.load_bin_program([word("popi", a=2), word("memwi", c=2), END])
    assert [made.run(**NO_INPUT).counter_events["value"].tolist() for _ in range(2)] == [[3], [2]]
    made.reset()
    with pytest.raises(ProgramError, match="empty stack"):
        made.run(**NO_INPUT)


def test_version_is_that_of_program_memory_and_registers():
    made = processor(word("regwi", a=1, imm=7), word("memwi", c=1, imm=1), END)
    before = made.version
    made.run(**NO_INPUT)
    after = made.version
    made.load_mem("dmem", np.array([0], np.int32), 1)
    cleared = made.version
    made.run(**NO_INPUT)
    assert len({before, after, cleared}) == 3
    assert made.version == after
    made.load_mem("dmem", np.array([0], np.int32), 1)
    assert made.version == cleared
    made.reset()
    assert made.version == before
    made.load_bin_program([word("regwi", a=1, imm=8), END])
    assert made.version not in {before, after, cleared}


def test_version_is_new_after_a_run_that_read_an_input():
    made = processor(word("read", a=1), END)
    versions = [made.version]
    for _ in range(3):
        made.run(lambda *_: 0)
        versions.append(made.version)
    assert len(set(versions)) == 4


def test_data_memory_is_written_and_read_from_outside():
    made = processor(word("memri", a=1, imm=8), word("memwi", c=1, imm=9), END)
    made.load_mem("dmem", np.array([-2, 2**31 - 1], np.int32), 8)
    made.reload_mem()
    assert made.run(**NO_INPUT).counter_events["value"].tolist() == [-2]
    assert made.read_mem("dmem", 2, 8).tolist() == [-2, -2]
    assert made.read_mem("dmem", 2, 8).dtype == np.int32


@pytest.mark.parametrize(("length", "addr"), [(65, 0), (1, 64), (1, -1), (-1, 3)])
def test_a_block_outside_of_data_memory_is_refused(length, addr):
    with pytest.raises(ProgramError, match="addresses 0 to 63"):
        processor(END).read_mem("dmem", length, addr)


@pytest.mark.parametrize("memory", ["pmem", "wmem", ""])
def test_other_memories_are_not_open(memory):
    with pytest.raises(ProgramError, match="gives access to 'dmem' only"):
        processor(END).load_mem(memory, np.zeros(1, np.int32))


def test_data_memory_has_a_power_of_two():
    with pytest.raises(ValueError, match="power of two"):
        TprocV1(16, 100)


# ------------------------------------------------------------------------------------------- refusals
def test_an_unknown_opcode_is_named_with_address_and_word():
    with pytest.raises(ProgramError) as error:
        run(word("regwi", a=1), 0x7700000000000123, END)
    assert "address 1, word 0x7700000000000123: opcode 0x77" in str(error.value)


def test_all_opcodes_but_the_23_are_unknown():
    unknown = set(range(256)) - set(OPCODES.values())
    assert len(unknown) == 256 - 23
    for opcode in unknown:
        with pytest.raises(ProgramError, match=f"opcode {opcode:#04x} is not valid"):
            run(opcode << 56, END)


def test_an_unknown_opcode_that_is_never_reached_does_no_harm():
    assert run(END, 0xFF << 56).end_tick == 2


def test_running_past_the_program_is_refused():
    with pytest.raises(ProgramError, match="address 1, without word: the program has only 1 words"):
        run(word("regwi", a=1))
    with pytest.raises(ProgramError, match="address 4000"):
        run(word("condj", oper=4, imm=4000), END)
    with pytest.raises(ProgramError, match="address 0"):
        TprocV1(16, 16).run(**NO_INPUT)


def test_the_stack_takes_255_words():
    push = [word("regwi", a=1, imm=254), word("pushi", b=1), word("loopnz", oper=ADD, a=1, b=1, imm=1)]
    pop = [word("popi", a=2), word("memwi", c=2)]
    assert stored(*push, *pop * 3) == [0, 1, 2]
    with pytest.raises(ProgramError, match=r"address 3, word 0x10.*`pushi` on a full stack"):
        run(*push, word("pushi", b=1), END)


def test_popping_an_empty_stack_is_refused():
    with pytest.raises(ProgramError, match=r"address 2, word 0x11.*`popi` from an empty stack"):
        run(word("pushi", b=1), word("popi", a=1), word("popi", a=1), END)


def test_what_a_program_did_before_its_error_stays():
    made = processor(word("regwi", a=1, imm=4), word("memwi", c=1, imm=6), word("popi", a=1), END)
    with pytest.raises(ProgramError):
        made.run(**NO_INPUT)
    assert made.read_mem("dmem", 1, 6).tolist() == [4]


def test_an_endless_program_is_refused_after_the_limit_of_instructions():
    with pytest.raises(
        ProgramError, match=r"address 0.*not ended after 1000 instructions.*instruction_limit=10000"
    ):
        run(word("condj", oper=4, imm=0), instruction_limit=1000)
    assert run(*[word("synci")] * 1000, END, instruction_limit=1000).end_tick == 3002


def test_an_endless_program_is_refused_after_the_limit_of_events():
    with pytest.raises(
        ProgramError, match=r"not ended after \d{4} words sent and stored.*instruction_limit="
    ):
        run(word("memwi"), word("condj", oper=4, imm=0), event_limit=5000)


def test_a_program_that_does_not_fit_is_refused():
    with pytest.raises(ProgramError, match="1 to 16;"):
        TprocV1(16, 16).load_bin_program([END] * 17)
    with pytest.raises(ProgramError, match="1 to 16;"):
        TprocV1(16, 16).load_bin_program([])


@pytest.mark.parametrize("words", [[-1], [2**64], ["end"], [1.0], [[1, 2]], np.array([-5]), None])
def test_what_is_no_word_of_64_bits_is_refused(words):
    with pytest.raises(ProgramError, match="64-bit"):
        TprocV1(16, 16).load_bin_program(words)


def test_a_program_of_the_other_processor_is_refused():
    with pytest.raises(ProgramError, match="version 2"):
        TprocV1(16, 16).load_bin_program({"pmem": [[0] * 8]})


# ---------------------------------------------------------------------------------------------- other
@pytest.mark.long
def test_a_million_passes_are_counted_one_by_one():
    pytest.importorskip("numba", reason="without it a million passes take a quarter of a minute")
    body = [
        word("synci", imm=400),
        word("seti", b=2, imm=10),
        word("set", channel=1, b=2, c=3),
        word("mathi", oper=ADD, a=4, b=4, imm=1),
        word("memwi", c=4, imm=1),
        word("loopnz", oper=ADD, a=1, b=1, imm=1),
    ]
    made = processor(word("regwi", a=1, imm=10**6 - 1), *body, END)
    result = made.run(**NO_INPUT)
    assert (len(result.pin_events), len(result.port_writes), result.counter_events["value"][-1]) == (
        10**6,
        10**6,
        10**6,
    )


def test_machine_code_that_cannot_be_kept_on_disk_is_made_all_the_same(monkeypatch):
    from lightbed import compiled as machine_code
    from sim.twins.rfsoc.tproc_v1 import compiled

    class NumbaWithoutFolder:
        config = SimpleNamespace(DISABLE_JIT=0)
        __version__ = "0"

        @staticmethod
        def njit(*, cache=False, error_model, _nrt):
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return lambda function: ("made", function)

    monkeypatch.setattr(machine_code, "IS_AVAILABLE", True)
    monkeypatch.setattr(machine_code, "numba", NumbaWithoutFolder, raising=False)
    assert compiled.compile_function(word) == ("made", word)
