"""Single instructions of the second timed processor, assembled by QICK's own assembler and worked out by hand."""

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick", reason="needs QICK's assembler: pip install 'lightbed[kit]'")
from qick.tprocv2_assembler import Assembler

from sim.twins.rfsoc.not_simulated import NotSimulated
from sim.twins.rfsoc.processor import ProgramError
from sim.twins.rfsoc.tproc_v2 import TprocV2

SILENT = lambda port, half, tick: 0
MULTIPLIED = "REG_WR r1 imm #65536\nARITH T r1 r1" + 5 * "\nNOP"  # 2**32, found by the sixth instruction
WAVE = [1, 2, 0xFF00_0003, 4, 5, 0x1234_0006, 0, 0]


def processor(text, **options):
    _, words = Assembler.str_asm2bin(text)
    return with_words(words, **options)


def with_words(words, **options):
    made = TprocV2(2048, 64, 8, **options)
    made.load_bin_program({"pmem": words, "dmem": np.arange(10), "wmem": np.array([WAVE])})
    return made


def carried_out(text, **options):
    """Return (registers, run) of a text to which the end is added."""
    made = processor(text + "\nJUMP HERE", **options)
    return made, made.run(SILENT)


def word(text):
    _, words = Assembler.str_asm2bin(text)
    low, middle, high = words[1][:3]
    return low | middle << 32 | high << 64


def raw(*words):
    return [[w & 0xFFFF_FFFF, w >> 32 & 0xFFFF_FFFF, w >> 64, 0, 0, 0, 0, 0] for w in words]


def pins(run):
    return [(int(p["kind"]), int(p["port"]), int(p["time"]), int(p["word"])) for p in run.pin_events]


# ------------------------------------------------------------------------------------------ registers
@pytest.mark.parametrize(
    ("lines", "register", "value"),
    [
        ("REG_WR r1 imm #-2", "r1", 0xFFFF_FFFE),
        ("REG_WR r1 imm #5\nREG_WR r2 op -op(r1 - #7)", "r2", 0xFFFF_FFFE),
        ("REG_WR r1 imm #-16\nREG_WR r2 op -op(r1 ASR #2)", "r2", 0xFFFF_FFFC),
        ("REG_WR r1 imm #-16\nREG_WR r2 op -op(r1 SR #2)", "r2", 0x3FFF_FFFC),
        ("REG_WR r1 imm #3\nREG_WR r2 imm #17\nREG_WR r3 op -op(r1 SL r2)", "r3", 6),
        ("REG_WR r1 imm #-2147483648\nREG_WR r2 op -op(ABS r1)", "r2", 0x8000_0000),
        ("REG_WR s15 imm #305419896", "s15", 0x5678),
        ("REG_WR s0 imm #5", "s0", 0),
        ("REG_WR r2 dmem [&7]", "r2", 7),
        ("REG_WR r1 imm #3\nREG_WR r2 dmem [r1 + &5]", "r2", 8),
        ("REG_WR r1 imm #67\nREG_WR r2 dmem [r1]", "r2", 3),
        ("ARITH T r1 r1\nNOP\nNOP\nNOP\nNOP\nNOP\nREG_WR r2 op -op(s10 AND #15)", "r2", 0b0111),
        ("DIV r1 #5\nWAIT div_rdy\nREG_WR r2 op -op(s10 AND #15)", "r2", 0b1101),
        ("ARITH T r1 r1\nNOP\nNOP\nNOP\nNOP\nNOP\nCLEAR arith\nREG_WR r2 op -op(s10 AND #15)", "r2", 0b0101),
        ("REG_WR r1 imm #17\nDIV r1 #5\nWAIT div_dt\nREG_WR r2 op -op(s4)\nREG_WR r3 op -op(s5)", "r3", 2),
        ("REG_WR r1 imm #17\nDIV r1 #0\nWAIT div_rdy\nREG_WR r2 op -op(s4)", "r2", 0x7FFF_FFFF),
        (
            "REG_WR r1 imm #3\nREG_WR s2 imm #1\nARITH T r1 r1\nNOP\nNOP\nNOP\nNOP\nNOP\nREG_WR r2 op -op(s6)",
            "r2",
            9,
        ),
        (
            "REG_WR r1 imm #3\nARITH T r1 r1\nNOP\nNOP\nNOP\nNOP\nNOP\nREG_WR s2 imm #1\nREG_WR r2 op -op(s6)",
            "r2",
            9,
        ),
        (
            "REG_WR r1 imm #65536\nREG_WR s2 imm #1\nARITH T r1 r1\nNOP\nNOP\nNOP\nNOP\nNOP\nREG_WR r2 op -op(s7)",
            "r2",
            1,
        ),
        ("DIV r1 #5\nWAIT div_rdy\nCLEAR div\nREG_WR r2 op -op(s10 AND #15)", "r2", 0b0101),
        ("DIV r1 #5\nWAIT div_rdy\nCLEAR arith\nREG_WR r2 op -op(s10 AND #15)", "r2", 0b1101),
        (
            MULTIPLIED + "\nREG_WR s2 imm #1\nREG_WR r2 op -op(s7)",
            "r2",
            1,
        ),
        (
            MULTIPLIED + "\nREG_WR s2 imm #1\nREG_WR s2 imm #0\nREG_WR r2 op -op(s7)",
            "r2",
            0,
        ),
        ("REG_WR r_wave wmem [&0]\nREG_WR r2 op -op(w2)", "r2", 3),
        ("REG_WR r_wave wmem [&0]\nREG_WR r2 op -op(w5)", "r2", 6),
        ("TEST -op(r1 - #1)\nREG_WR r2 imm #1 -if(S)", "r2", 1),
        ("TEST -op(r1 - #1)\nREG_WR r2 imm #1 -if(NS)", "r2", 0),
        ("FLAG inv\nREG_WR r2 imm #1 -if(F)", "r2", 1),
        ("FLAG set\nFLAG clr\nREG_WR r2 imm #1 -if(F)", "r2", 0),
        ("REG_WR s2 imm #48\nARITH T r1 r1\nJUMP HERE -if(NF)\nREG_WR r2 imm #1 -if(F)", "r2", 1),
    ],
)
def test_registers(lines, register, value):
    made, _ = carried_out(lines)
    assert made.registers[register] == value


def test_registers_beyond_those_built_are_the_lower_ones_again():
    made, _ = carried_out("REG_WR r17 imm #5", dreg_qty=16)
    assert made.registers["r1"] == 5


def test_a_condition_that_never_holds():
    conditional = word("REG_WR r1 imm #5 -if(NF)") | 0b111 << 63
    made = with_words(raw(0, conditional, word("JUMP HERE") + (1 << 45)))
    made.run(SILENT)
    assert made.registers["r1"] == 0


def test_a_return_pays_no_heed_to_its_condition():
    made, run = carried_out(
        "CALL SUB\nREG_WR r2 imm #7\nJUMP LAST\nSUB:\nRET -if(Z)\nREG_WR r1 imm #1\nLAST:\nNOP"
    )
    assert (made.registers["r1"], made.registers["r2"]) == (0, 7)
    assert run.end_tick > 0


def test_the_wave_memory_is_read_before_it_is_written():
    """REG_WR r_wave -ww exchanges a place of the memory with the registers, and the port gets what was there."""
    made, run = carried_out("REG_WR w0 imm #77\nREG_WR r_wave wmem [&0] -ww -wp(wmem) p3")
    assert made.registers["w0"] == 1
    assert made.read_mem("wmem", 1)[0].tolist() == [77, 0, 0, 0, 0, 0]
    assert run.port_writes[0]["words"].tolist() == [1, 2, 3, 4, 5, 6]
    assert run.port_writes[0]["port"] == 3


@pytest.mark.parametrize("place", ["[&1]", "[&9]", "[r1]"])
def test_a_place_of_the_wave_memory(place):
    """By literal or register; the memory of eight waves repeats itself beyond its end."""
    lines = "REG_WR r1 imm #1\nREG_WR w3 imm #99\nWMEM_WR [&1]\nREG_WR w3 imm #0\nWPORT_WR p0 wmem "
    _, run = carried_out(lines + place)
    assert run.port_writes["words"][0].tolist() == [0, 0, 0, 99, 0, 0]


def test_memory_keeps_168_bits_of_a_wave():
    made = processor("JUMP HERE")
    assert made.read_mem("wmem", 1)[0].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("lines", "waits", "expected"),
    [
        ("REG_WR r1 imm #6\nARITH T r1 r1", 4, 0),
        ("REG_WR r1 imm #6\nARITH T r1 r1", 5, 36),
        ("REG_WR r1 imm #60\nDIV r1 #7", 32, 0),
        ("REG_WR r1 imm #60\nDIV r1 #7", 33, 8),
    ],
)
def test_units_have_their_results_when_the_hardware_has(lines, waits, expected):
    made, _ = carried_out(f"{lines}\n" + "NOP\n" * waits + "REG_WR r2 op -op(s3 OR s4)")
    assert made.registers["r2"] == expected


@pytest.mark.parametrize(("between", "expected"), [(10, 3), (31, 8), (32, 3)])
def test_a_division_replaces_one_under_way_but_in_its_last_cycle_is_lost(between, expected):
    made, _ = carried_out(
        "REG_WR r1 imm #60\nDIV r1 #7\n" + "NOP\n" * between + "DIV r1 #20\n" + "NOP\n" * 40
    )
    assert made.registers["s4"] == expected


# --------------------------------------------------------------------------------------------- random
def test_the_random_register_steps_when_it_is_read():
    made = processor(
        "REG_WR s1 imm #1\nREG_WR r1 op -op(s1)\nREG_WR r4 imm #1\n"
        "REG_WR r2 op -op(s1)\nREG_WR r3 op -op(s1)\nJUMP HERE"
    )
    made.set_lfsr(2)
    made.run(SILENT)
    assert [made.registers[r] for r in ("r1", "r2", "r3")] == [1, 2, 4]


def test_the_random_register_steps_when_zero_is_written_and_survives_the_start():
    made = processor("REG_WR s0 imm #0\nREG_WR r1 op -op(s1)\nJUMP HERE")
    made.set_lfsr(3)
    before = made.version
    seen = []
    for _ in range(4):
        made.run(SILENT)
        seen.append(made.registers["r1"])
    # 0 -> 1 (even parity comes in as a one) -> 2 (odd) -> 4 (bit 1 was set) -> 9 (none of the taps was)
    assert seen == [1, 2, 4, 9]
    assert made.version == before + 4


def test_the_free_running_random_register_is_refused():
    with pytest.raises(NotSimulated, match="free-running"):
        processor("JUMP HERE").set_lfsr(1)


# ----------------------------------------------------------------------------------------- time, ports
def test_times_count_from_the_reference():
    _, run = carried_out("TIME inc_ref #1000\nTRIG p5 set @10\nTIME set_ref #2000\nTRIG p5 clr @-10")
    assert pins(run) == [(1, 5, 1010, 1), (1, 5, 1990, 0)]


def test_the_reference_moves_by_numbers_without_sign():
    _, run = carried_out("REG_WR r1 imm #-1\nTIME inc_ref r1\nTRIG p0 set @5")
    assert pins(run) == [(1, 0, 2**32 + 4, 1)]


def test_without_a_literal_the_time_is_that_of_s_out_time():
    _, run = carried_out("REG_WR s14 imm #500\nREG_WR r1 imm #-1\nDPORT_WR p1 reg r1\nDPORT_WR p1 imm 9 @700")
    assert pins(run) == [(0, 1, 500, 0xFFFF_FFFF), (0, 1, 700, 9)]


def test_wmem_wr_takes_its_time_from_s_out_time_whatever_the_assembler_was_told():
    _, run = carried_out("REG_WR s14 imm #500\nWMEM_WR [&1] -wp(r_wave) p2 @900")
    assert run.port_writes["time"].tolist() == [500]


def test_words_of_one_port_leave_three_ticks_apart_and_in_order():
    _, run = carried_out("\n".join(f"WPORT_WR p2 wmem [&0] @{t}" for t in (100, 100, 90, 500)))
    assert run.port_writes["time"].tolist() == [100, 103, 106, 500]


def test_ports_do_not_wait_for_each_other():
    _, run = carried_out(
        "TRIG p0 set @100\nTRIG p1 set @100\nDPORT_WR p0 imm 1 @100\nWPORT_WR p0 wmem [&0] @100"
    )
    assert [p["time"] for p in run.pin_events] == [100, 100, 100]
    assert run.port_writes["time"].tolist() == [100]


def test_a_late_word_leaves_when_the_core_comes_to_it():
    _, run = carried_out("NOP\n" * 100 + "TRIG p0 set @10", ticks_per_cycle=2)
    assert pins(run) == [(1, 0, 2 * 101, 1)]


def test_a_full_queue_holds_the_core_until_its_oldest_word_has_left():
    text = "\n".join(f"TRIG p0 set @{t}" for t in (1000, 2000, 3000, 4000)) + "\nREG_WR s12 imm #1"
    _, run = carried_out(text, fifo_depth=4, ticks_per_cycle=1)
    assert 1000 <= run.counter_events["time"][0] < 1010
    _, free = carried_out(text, fifo_depth=5, ticks_per_cycle=1)
    assert free.counter_events["time"][0] < 30


@pytest.mark.parametrize("ratio", [0.5, 1, 2.1504])
@pytest.mark.parametrize("start", [0, 5000])
def test_a_wait_ends_at_its_time(ratio, start):
    _, run = carried_out(f"TIME set_ref #{start}\nWAIT time @3000\nREG_WR s12 imm #1", ticks_per_cycle=ratio)
    asked = start + 3000 - Assembler.WAIT_TIME_OFFSET
    assert asked <= run.counter_events["time"][0] <= asked + 15 * max(ratio, 1)


def test_a_wait_for_a_time_that_has_passed_is_none():
    _, run = carried_out("WAIT time @-100\nREG_WR s12 imm #1", ticks_per_cycle=1)
    assert run.counter_events["time"][0] < 20


def test_a_wait_by_a_jump_to_itself():
    """QICK writes this for programs beyond 2048 words, where the jump goes by s_addr."""
    text = (
        "REG_WR r3 imm #100000000\nREG_WR s15 label SKIP\nTEST -op(s11 - r3)\n"
        "JUMP [s15] -if(S) -op(s11 - r3) -uf\nREG_WR s12 imm #1"
    )
    _, run = carried_out(text, ticks_per_cycle=1)
    assert 100_000_000 <= run.counter_events["time"][0] <= 100_000_010


def test_a_loop_that_does_more_than_wait_is_not_skipped():
    lines = "TEST -op(r1 - #1)\nL:\nREG_WR r1 op -op(r1 + #1)\nJUMP L -if(S) -op(s11 - #1000) -uf"
    made, run = carried_out(lines, ticks_per_cycle=1)
    assert made.registers["r1"] == pytest.approx(1000 / 4, abs=3)
    assert run.end_tick == pytest.approx(1000, abs=10)


def test_the_clock_reads_the_time_since_the_reference():
    made, _ = carried_out(
        "NOP\nNOP\nNOP\nREG_WR r1 op -op(s11)\nTIME set_ref #1000\nREG_WR r2 op -op(s11)", ticks_per_cycle=3
    )
    assert made.registers["r1"] == 3 * 4
    assert made.registers["r2"] == 2**32 - 1000 + 3 * 8  # the clock is waited for after its reference moved


@pytest.mark.parametrize(
    ("lines", "cycles"),
    [
        ("NOP", 1),
        ("JUMP NEXT", 3),
        ("TEST -op(r1)\nREG_WR r1 imm #1 -if(NZ)", 4),
        ("TEST -op(r1)\nNOP\nREG_WR r1 imm #1 -if(NZ)", 4),
        ("FLAG set\nREG_WR r1 imm #1 -if(F)", 5),
        ("CLEAR arith\nREG_WR r1 imm #1 -if(F)", 6),
        ("TRIG p1 set @9\nTRIG p2 set @9", 4),
        ("REG_WR s15 label NEXT\nJUMP [s15]", 7),
        ("REG_WR s15 label NEXT\nJUMP [s15] -if(Z)", 2),
        ("REG_WR r1 dmem [&1]\nREG_WR r2 op -op(r1)", 3),
        ("REG_WR r1 dmem [&1]\nREG_WR r2 op -op(r3)", 2),
        ("REG_WR r1 dmem [&1]\nREG_WR r2 dmem [r1]", 3),
        ("REG_WR r_wave wmem [&0]\nREG_WR r2 op -op(w1)", 4),
        ("REG_WR r_wave wmem [&0]\nWMEM_WR [&1]", 5),
        ("REG_WR w1 imm #3\nWMEM_WR [&1]", 5),
        ("TIME inc_ref #1\nREG_WR r2 op -op(s11)", 4),
        ("DPORT_RD p0\nREG_WR r2 op -op(s8)", 4),
        ("REG_WR s1 imm #1\nNOP", 5),
        ("REG_WR r1 op -op(s1)\nNOP", 3),
    ],
)
def test_instructions_take_a_cycle_and_the_stalls_of_the_pipeline(lines, cycles):
    """After `qcore_ctrl_hazard.sv`. A NOP stands before them; REG_WR s12 behind them, written a cycle after its own."""
    _, run = carried_out(lines.replace("NEXT", "OVER") + "\nOVER:\nREG_WR s12 imm #1", ticks_per_cycle=1)
    assert run.counter_events["time"].tolist() == [1 + cycles + 1]


def test_inputs_are_read_at_the_time_of_the_instruction():
    asked = []

    def read(port, half, tick):
        asked.append((port, half, tick))
        return -7 if half == 0 else 9

    made = processor("WAIT time @1010\nDPORT_RD p3\nREG_WR r1 op -op(s8)\nREG_WR r2 op -op(s9)\nJUMP HERE")
    made.run(read)
    assert [(port, half) for port, half, _ in asked] == [(3, 0), (3, 1)]
    assert all(1000 <= tick <= 1020 for _, _, tick in asked)
    assert (made.registers["r1"], made.registers["r2"]) == (2**32 - 7, 9)


def test_both_registers_are_seen_from_outside():
    _, run = carried_out("REG_WR s12 imm #5\nREG_WR s13 imm #-1\nREG_WR s12 op -op(s12 + #1)")
    assert [(c["address"], c["value"]) for c in run.counter_events] == [(1, 5), (2, 2**32 - 1), (1, 6)]
    assert sorted(run.counter_events["time"].tolist()) == run.counter_events["time"].tolist()


def test_the_host_writes_two_registers():
    made = processor("REG_WR r1 op -op(s6)\nREG_WR r2 op -op(s7)\nJUMP HERE")
    made.set_host_words(5, -1)
    made.run(SILENT)
    assert (made.registers["r1"], made.registers["r2"]) == (5, 2**32 - 1)


# ------------------------------------------------------------------------------------ memory, versions
def test_a_run_leaves_its_changes_and_reload_takes_them_back():
    made = processor("DMEM_WR [&0] imm #42\nJUMP HERE")
    loaded = made.version
    made.run(SILENT)
    assert made.read_mem("dmem", 3).tolist() == [42, 1, 2]
    changed = made.version
    made.reload_mem()
    assert made.read_mem("dmem", 3).tolist() == [0, 1, 2]
    assert loaded < changed < made.version


def test_a_version_stands_while_nothing_changes():
    made = processor("REG_WR r1 imm #3\nREG_WR r_wave wmem [&0]\nWMEM_WR [&0]\nJUMP HERE")
    before = made.version
    made.run(SILENT)
    made.reload_mem()
    made.load_mem("dmem", np.arange(10))
    assert made.version == before


def test_another_program_is_another_version():
    made = processor("REG_WR r1 imm #3\nJUMP HERE")
    before = made.version
    _, words = Assembler.str_asm2bin("REG_WR r1 imm #4\nJUMP HERE")
    made.load_bin_program({"pmem": words, "dmem": None, "wmem": None})
    assert made.version > before


def test_a_program_without_its_memories_waits_for_reload():
    made = TprocV2(64, 16, 8)
    _, words = Assembler.str_asm2bin("REG_WR r1 dmem [&2]\nJUMP HERE")
    made.load_bin_program({"pmem": words, "dmem": np.arange(5), "wmem": None}, load_mem=False)
    made.run(SILENT)
    assert made.registers["r1"] == 0
    made.reload_mem()
    made.run(SILENT)
    assert made.registers["r1"] == 2
    made.reset()
    assert set(made.registers.values()) == {0}


@pytest.mark.parametrize("name", ["pmem", "dmem", "wmem"])
def test_memories_read_back_what_was_written(name):
    made = TprocV2(16, 16, 16)
    block = np.arange(1, 3) if name == "dmem" else np.arange(16).reshape(2, 8)
    made.load_mem(name, block, addr=3)
    columns = {"pmem": 3, "dmem": 1, "wmem": 6}[name]
    expected = block if name == "dmem" else block[:, :columns]
    assert made.read_mem(name, 2, addr=3).tolist() == expected.tolist()
    assert made.read_mem(name, 2, addr=3).dtype == np.int32


# ---------------------------------------------------------------------------------------------- refusals
def test_an_unknown_opcode_is_told_with_address_and_word():
    unknown = 0b111 << 69 | 0x55
    with pytest.raises(
        ProgramError, match=r"address 1 \(word 0xe00000000000000055\) is not a valid instruction"
    ):
        with_words(raw(0, unknown)).run(SILENT)


@pytest.mark.parametrize("unit", range(4, 8))
def test_internal_units_that_do_not_exist(unit):
    with pytest.raises(ProgramError, match="is not a valid instruction"):
        with_words(raw(0, 0b010 << 69 | unit << 60)).run(SILENT)


def test_operations_that_the_multiplier_has_not():
    with pytest.raises(ProgramError, match="is not a valid instruction"):
        with_words(raw(0, word("ARITH T r1 r1") | 9 << 56)).run(SILENT)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("NET set_net r1 r2", "NET 1"),
        ("COM sync r1", "COM 6"),
        ("PA 3 r1 r2", "PA 3"),
        ("PB 31 r1", "PB 31"),
        ("TIME rst", "TIME rst"),
        ("TIME updt #5", "TIME updt"),
        ("WAIT port_dt", "s_status"),
        ("REG_WR r1 op -op(s10)", "s_status"),
        ("REG_WR r1 op -op(s10 - #1)", "s_status"),
        ("REG_WR s2 imm #h40", "a flag from another source"),
        ("REG_WR s2 imm #h07", "core data from another source"),
    ],
)
def test_what_the_twin_lacks_is_refused_by_name(line, name):
    with pytest.raises(NotSimulated, match=rf"{name}.*address 1 \(word 0x[0-9a-f]+\)"):
        carried_out(line)


def test_what_is_not_carried_out_is_not_refused():
    made, _ = carried_out("TEST -op(r1)\nPA 3 r1 r2 -if(NZ)\nREG_WR r1 imm #1")
    assert made.registers["r1"] == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NOP", "address 2 is outside the program, which has 2 words"),
        ("REG_WR s15 imm #500\nJUMP [s15]", "address 500 is outside"),
        ("JUMP HERE -if(NF)", "waits for a flag that nothing can change"),
        ("SUB:\nCALL SUB", "inside 7 others"),
        ("RET", "returns without a call"),
        ("TRIG p0 set @-5", "before the start"),
        ("WPORT_WR p0 wmem [&0] @-5", "before the start"),
        (
            "L:\nREG_WR r1 op -op(r1 + #1)\nJUMP L",
            "has not ended after 1000 instructions; check that .*=10000",
        ),
    ],
)
def test_programs_that_cannot_go_on(text, reason):
    with pytest.raises(ProgramError, match=reason):
        processor(text, instruction_limit=1000).run(SILENT)


@pytest.mark.parametrize("limit", [5, 6])
def test_the_limit_counts_instructions(limit):
    made = processor("NOP\nNOP\nNOP\nNOP\nJUMP HERE", instruction_limit=limit)
    if limit == 6:
        assert made.run(SILENT).end_tick > 0
        return
    with pytest.raises(ProgramError, match=r"at address 5: the program has not ended after 5 instructions"):
        made.run(SILENT)


def test_a_run_repeats_itself():
    made = processor("REG_WR r1 op -op(r1 + #1)\nTRIG p0 set @100\nREG_WR s12 op -op(r1)\nJUMP HERE")
    first, second = made.run(SILENT), made.run(SILENT)
    assert first.counter_events.tolist() == second.counter_events.tolist()
    assert first.pin_events.tolist() == second.pin_events.tolist()
    assert first.end_tick == second.end_tick


def test_seven_calls_nest():
    text = "CALL F1\nJUMP LAST\n" + "\n".join(f"F{n}:\nCALL F{n + 1}\nRET" for n in range(1, 7))
    made, _ = carried_out(text + "\nF7:\nREG_WR r1 imm #7\nRET\nLAST:\nNOP")
    assert made.registers["r1"] == 7


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            lambda p: p.load_mem("dmem", np.zeros(65)),
            "65 words from address 0 on do not fit into dmem, which has 64",
        ),
        (
            lambda p: p.load_mem("pmem", np.zeros((1, 2))),
            r"a block for pmem must have at least 3 words per line, not shape \(1, 2\)",
        ),
        (lambda p: p.load_mem("imem", np.zeros(1)), "no memory 'imem'"),
        (lambda p: p.read_mem("wmem", 9), "do not fit into wmem, which has 8"),
        (lambda p: p.read_mem("wmem", 1, addr=-1), "do not fit"),
    ],
)
def test_memory_that_is_not_there(call, reason):
    with pytest.raises(ProgramError, match=reason):
        call(processor("JUMP HERE"))


def test_without_numba_the_machine_goes_on_as_it_is(monkeypatch):
    from sim.twins.rfsoc.tproc_v2 import compiled
    from sim.twins.rfsoc.tproc_v2 import processor as module

    monkeypatch.setattr(module, "COMPILE_THRESHOLD", 50)
    monkeypatch.setattr(compiled, "is_ready", lambda: False)
    monkeypatch.setattr(compiled, "get_executor", lambda: None)
    made, run = carried_out(
        "REG_WR r1 imm #100\nL:\nREG_WR r1 op -op(r1 - #1) -uf\nJUMP L -if(NZ)\nREG_WR s12 imm #1"
    )
    assert made.registers["r1"] == 0
    assert run.counter_events["value"].tolist() == [1]


def test_more_records_than_fit_are_taken_away_in_between():
    _, run = carried_out(
        "REG_WR r1 imm #3000\nL:\nTIME inc_ref #10\nTRIG p0 set @1000\nREG_WR s12 op -op(r1)\n"
        "REG_WR r1 op -op(r1 - #1) -uf\nJUMP L -if(NZ)"
    )
    assert len(run.pin_events) == len(run.counter_events) == 3000
    assert (np.diff(run.pin_events["time"]) >= 10).all()
    assert run.counter_events["value"].tolist() == list(range(3000, 0, -1))
