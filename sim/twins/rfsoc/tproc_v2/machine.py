"""The machine: functions over flat arrays of integers, which numba can compile unchanged.

The functions run on Python lists. `compiled` compiles the same functions for arrays of 64-bit integers. Therefore this
module uses no objects, exceptions or unbounded integers: registers are 0..2**32-1, times have 48 bits, and `execute`
returns a stop code when `processor` has to act.

The arithmetic has the widths and signs of the firmware (AB_alu, arith, div_r and LFSR in `_qproc_ips.sv`).
"""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.cells import (
    ACTION,
    ADDRESS,
    ADDRESS_EFFECTS,
    ADDRESS_IS_LITERAL,
    ADDRESS_OFFSET,
    ADDRESS_REGISTER,
    ALU,
    ARITHMETIC_HIGH,
    ARITHMETIC_LOW,
    CALL,
    CALL_DEPTH,
    CONDITION,
    CONTINUE,
    COUNTER,
    CYCLE,
    DATA_IS_LITERAL,
    DATA_PIN,
    DIVIDE,
    DIVIDER_READY_CYCLE,
    END,
    ENDLESS_WAIT,
    EXECUTED_EFFECTS,
    FIRST_UNSIMULATED,
    FLAG,
    FROM_DMEM,
    FROM_LITERAL,
    FROM_REGISTERS,
    HOST_WORDS,
    INPUT,
    INPUT_PORT,
    INTERNAL_FLAG,
    JUMP,
    LEFT,
    LFSR_MODE,
    LITERAL,
    LOADED_REGISTER,
    MAX_CALL_DEPTH,
    MAX_RECORDS,
    MIN_SPACING_TICKS,
    MULTIPLIER_READY_CYCLE,
    NEEDED_RESOURCES,
    NOTHING,
    OPERATION,
    OUTSIDE_PROGRAM,
    PAUSE,
    PAUSE_AT,
    PC,
    PIN,
    PORT,
    PRODUCT_HIGH,
    PRODUCT_LOW,
    PROGRAM_LENGTH,
    QUEUE_DEPTH,
    QUOTIENT,
    RATIO_CYCLES,
    RATIO_TICKS,
    READ_INPUT,
    READY_ADDRESS,
    READY_FLAG,
    READY_LOADED,
    RECORD_COUNT,
    RECORD_LENGTH,
    RECORDS_FULL,
    REFERENCE,
    REFERENCE_TICK,
    REMAINDER,
    RETURN,
    RIGHT,
    RIGHT_IS_LITERAL,
    ROW_LENGTH,
    S_ADDRESS,
    S_STATUS,
    S_TIME,
    SIGN_FLAG,
    SOURCE,
    STACK,
    STEP_COUNT,
    STORE,
    SUBTRACT,
    TARGET,
    TIME_IS_LITERAL,
    TIME_MASK,
    TO_MEMORY,
    TO_PORT,
    TO_REGISTERS,
    TOO_DEEP,
    TOO_EARLY,
    TOO_SHALLOW,
    TRIGGER_PIN,
    UNSIMULATED_DATA_SOURCE,
    UNSIMULATED_FLAG_SOURCE,
    UPDATES_FLAGS,
    WAVE,
    WAVE_OUT,
    WAVE_REGISTERS,
    WAVE_WORDS,
    WORD_MASK,
    ZERO_FLAG,
    Cells,
)
from sim.twins.rfsoc.tproc_v2.instruction import EFFECT_CELL, EFFECT_DELAY

# -- unsigned 32-bit arithmetic


def convert_to_signed(value: int) -> int:
    """Return 32 bits as a signed number.

    >>> convert_to_signed(0xFFFF_FFFE)
    -2
    """
    return value - ((value & 0x8000_0000) << 1)


def wrap_signed(value: int, width: int) -> int:
    """Return the low bits of a number as a signed number.

    >>> wrap_signed(5, 3)
    -3
    """
    value &= (1 << width) - 1
    return value - ((value >> (width - 1)) << width)


def compute_alu_result(operation: int, a: int, b: int) -> int:
    """Return the result of the arithmetic unit. Even operations are arithmetic, odd operations are logic.

    Shifts use four bits of `b`.

    >>> hex(compute_alu_result(2, 3, 5))
    '0xfffffffe'
    """
    if operation & 1:
        return compute_logic_result(operation >> 1, a, b) & WORD_MASK
    selector = operation >> 1
    if selector == 0:
        result = a + b
    elif selector == 1:
        result = a - b
    elif selector == 2:
        result = a & b
    elif selector == 3:
        result = convert_to_signed(a) >> (b & 15)
    elif selector == 4:
        result = -b if b >> 31 else b
    elif selector == 5:
        result = a >> 16
    elif selector == 6:
        result = a & 0xFFFF
    else:
        result = (a & 0xFFFF) << 16 | a >> 16
    return result & WORD_MASK


def compute_logic_result(selector: int, a: int, b: int) -> int:
    """Return the result of a logic operation: NOT, OR, XOR, CAT, reserved (zero), parity, shift left, shift right."""
    if selector == 0:
        result = ~a
    elif selector == 1:
        result = a | b
    elif selector == 2:
        result = a ^ b
    elif selector == 3:
        result = (a & 0xFFFF) << 16 | b & 0xFFFF
    elif selector == 4:
        result = 0
    elif selector == 5:
        result = compute_parity(a)
    elif selector == 6:
        result = a << (b & 15)
    else:
        result = a >> (b & 15)
    return result


def compute_parity(a: int) -> int:
    """Return 1 if a 32-bit number has an odd number of ones, otherwise 0."""
    for shift in (16, 8, 4, 2, 1):
        a ^= a >> shift
    return a & 1


def multiply(operation: int, a: int, b: int, c: int, d: int) -> int:
    """Return the result of the multiplier: (A, D+A or D-A) x B, plus nothing, +C or -C.

    The factors are signed numbers of 27 and 18 bits. The result has 46 bits. The inner sum wraps at 27 bits, as in the
    DSP block.

    >>> multiply(4, 2, 10, 7, 3)  # PTP: (3 + 2) * 10 + 7
    57
    """
    left = wrap_signed(a, 27)
    if operation >= 6:
        left = wrap_signed(d, 27) - left
    elif operation >= 3:
        left = wrap_signed(d, 27) + left
    product = wrap_signed(left, 27) * wrap_signed(b, 18)
    if operation % 3 == 1:
        product += convert_to_signed(c)
    elif operation % 3 == 2:
        product -= convert_to_signed(c)
    return wrap_signed(product, 46)


def compute_quotient(a: int, b: int) -> int:
    """Return the quotient of the divider, at most 2**31 - 1. The quotient of a division by zero is also 2**31 - 1.

    >>> compute_quotient(17, 5), compute_quotient(17, 0) == 2**31 - 1
    (3, True)
    """
    largest = 0x7FFF_FFFF
    return min(a // b, largest) if b else largest


def compute_next_random(lfsr: int) -> int:
    """Return the next word of the random register: `lfsr` shifted left. Its LSB is the inverted parity of 4 old bits.

    These are bits 31, 21, 1 and 0.

    >>> compute_next_random(0), compute_next_random(1)
    (1, 2)
    """
    new_bit = 1 ^ (lfsr >> 31 ^ lfsr >> 21 ^ lfsr >> 1 ^ lfsr) & 1
    return (lfsr << 1 | new_bit) & WORD_MASK


# -- multiplier and divider: the state keeps their results until they are ready

DIVIDE_CYCLES = 34
MULTIPLY_CYCLES = 6
"""Cycles from the instruction that starts a unit until its result can be read: numbers of states of div_r and arith."""
READY_MULTIPLIER, NEW_PRODUCT, READY_DIVIDER, NEW_QUOTIENT = 1, 2, 4, 8
"""Bits of `s_status`."""
INFINITE_CYCLE = 1 << 60


def start_divider(dividend: int, divisor: int, registers: Cells, state: Cells) -> None:
    """Start a division, which replaces an unfinished division. In the last cycle of a division, do nothing."""
    deliver_results(state[CYCLE] + 1, registers, state)
    if state[DIVIDER_READY_CYCLE] - state[CYCLE] == 2:
        return
    state[QUOTIENT] = compute_quotient(dividend, divisor)
    state[REMAINDER] = dividend - state[QUOTIENT] * divisor
    state[DIVIDER_READY_CYCLE] = state[CYCLE] + DIVIDE_CYCLES
    registers[S_STATUS] &= READY_MULTIPLIER | NEW_PRODUCT


def start_multiplier(operation: int, a: int, b: int, c: int, d: int, registers: Cells, state: Cells) -> None:
    """Start a multiplication with four inputs."""
    product = multiply(operation, a, b, c, d)
    state[PRODUCT_LOW] = product & WORD_MASK
    state[PRODUCT_HIGH] = product >> 32 & WORD_MASK
    state[MULTIPLIER_READY_CYCLE] = state[CYCLE] + MULTIPLY_CYCLES
    registers[S_STATUS] &= READY_DIVIDER | NEW_QUOTIENT


def deliver_results(now_cycle: int, registers: Cells, state: Cells) -> None:
    """Write the results that are ready at cycle `now_cycle` of the core into the registers."""
    if 0 < state[DIVIDER_READY_CYCLE] <= now_cycle:
        registers[4] = state[QUOTIENT]
        registers[5] = state[REMAINDER]
        registers[S_STATUS] |= READY_DIVIDER | NEW_QUOTIENT
        state[DIVIDER_READY_CYCLE] = 0
    if 0 < state[MULTIPLIER_READY_CYCLE] <= now_cycle:
        state[ARITHMETIC_LOW] = state[PRODUCT_LOW]
        state[ARITHMETIC_HIGH] = state[PRODUCT_HIGH]
        registers[3] = state[PRODUCT_LOW]
        if registers[2] & 15 == 1:
            registers[6] = state[PRODUCT_LOW]
            registers[7] = state[PRODUCT_HIGH]
        registers[S_STATUS] |= READY_MULTIPLIER | NEW_PRODUCT
        state[MULTIPLIER_READY_CYCLE] = 0


# -- time: the current tick, stalls (`qcore_ctrl_hazard.sv`), queues (`qproc_dispatcher.sv`)


def compute_tick(state: Cells) -> int:
    """Return the current tick of the timing clock."""
    return state[CYCLE] * state[RATIO_TICKS] // state[RATIO_CYCLES]


def stall_until(tick: int, state: Cells) -> None:
    """Stall the core until a tick. Do nothing if the tick has passed."""
    state[CYCLE] = max(state[CYCLE], -(-tick * state[RATIO_CYCLES] // state[RATIO_TICKS]))


def stall_until_ready(needed_mask: int, state: Cells) -> None:
    """Stall an instruction until the resources in `needed_mask` are ready."""
    cell = READY_FLAG
    while needed_mask:
        if needed_mask & 1:
            state[CYCLE] = max(state[CYCLE], state[cell])
        needed_mask >>= 1
        cell += 1


def stall_for_load(code: Cells, row: int, state: Cells) -> None:
    """Stall an instruction that uses the register which the previous instruction loads from data memory."""
    if state[READY_LOADED] > state[CYCLE]:
        for column in (LEFT, RIGHT, ADDRESS_REGISTER, ADDRESS_OFFSET):
            if code[row + column] == state[LOADED_REGISTER]:
                state[CYCLE] = max(state[CYCLE], state[READY_LOADED])


def mark_ready(effect_mask: int, cycle: int, state: Cells) -> None:
    """Set the cycles at which resources are ready again. An instruction of this cycle has the effects `effect_mask`."""
    effect = 0
    while effect_mask:
        if effect_mask & 1:
            cell = EFFECT_CELL[effect]
            state[cell] = max(state[cell], cycle + EFFECT_DELAY[effect])
        effect_mask >>= 1
        effect += 1


def append_record(kind: int, port: int, tick: int, value: int, state: Cells, records: Cells) -> None:
    """Append a record of an event that is visible outside the processor."""
    base = state[RECORD_COUNT] * RECORD_LENGTH
    records[base] = kind
    records[base + 1] = port
    records[base + 2] = tick
    records[base + 3] = value
    state[RECORD_COUNT] += 1


def enqueue_word(
    queue: int, scheduled_tick: int, state: Cells, departure_ticks: Cells, pushed_counts: Cells
) -> int:
    """Put a word into the queue of its port, and return the tick at which it leaves.

    The word leaves at the scheduled tick, or later if the core is late or the previous word left less than
    `MIN_SPACING_TICKS` before. A full queue stalls the core until its oldest word has left.
    """
    count, depth = pushed_counts[queue], state[QUEUE_DEPTH]
    base = queue * depth
    departure_tick = max(scheduled_tick, compute_tick(state))
    if count:
        departure_tick = max(departure_tick, departure_ticks[base + (count - 1) % depth] + MIN_SPACING_TICKS)
    departure_ticks[base + count % depth] = departure_tick
    pushed_counts[queue] = count + 1
    if count + 1 >= depth:
        stall_until(departure_ticks[base + (count + 1) % depth], state)
    return departure_tick


def compute_scheduled_tick(code: Cells, row: int, registers: Cells, state: Cells) -> int:
    """Return the tick that a port instruction requests: the reference plus a literal or `s_out_time`."""
    offset = code[row + LITERAL] if code[row + TIME_IS_LITERAL] else registers[14]
    return (state[REFERENCE_TICK] + convert_to_signed(offset)) & TIME_MASK


# -- registers and conditions


def read_operand(index: int, registers: Cells, state: Cells) -> int:
    """Return the value of a register. The value of `s_usr_time` is the time since the reference."""
    if index == S_TIME:
        return (compute_tick(state) - state[REFERENCE_TICK]) & WORD_MASK
    if 3 <= index <= S_STATUS:
        deliver_results(state[CYCLE], registers, state)
    return registers[index]


def is_condition_met(condition: int, registers: Cells, state: Cells) -> bool:
    """Return True if a condition holds: always, Z, S, NZ, NS, F, NF, never."""
    if condition == 0:
        return True
    if condition == 7:
        return False
    if condition in (1, 3):
        value = state[ZERO_FLAG]
    elif condition in (2, 4):
        value = state[SIGN_FLAG]
    elif registers[2] >> 4 == 3:
        deliver_results(state[CYCLE], registers, state)
        value = int(registers[S_STATUS] & 0b1010 != 0)
    else:
        value = state[INTERNAL_FLAG]
    expected = 1 if condition in (1, 2, 5) else 0
    return value == expected


def write_configuration(value: int, registers: Cells, state: Cells) -> int:
    """Write `s_cfg`, which selects the sources of flag and core data. Its upper half clears bits of `s_status`.

    Return CONTINUE, or UNSIMULATED_FLAG_SOURCE or UNSIMULATED_DATA_SOURCE for a source that is not simulated.
    """
    deliver_results(state[CYCLE], registers, state)
    registers[2] = value & 0xFF
    cleared_bits = (value >> 16 & 1) << 1 | (value >> 17 & 1) << 3
    registers[S_STATUS] &= WORD_MASK - cleared_bits
    data_source, flag_source = value & 15, value >> 4 & 15
    if flag_source not in (0, 3):
        return UNSIMULATED_FLAG_SOURCE
    if data_source > 1:
        return UNSIMULATED_DATA_SOURCE
    registers[6] = state[ARITHMETIC_LOW] if data_source else state[HOST_WORDS]
    registers[7] = state[ARITHMETIC_HIGH] if data_source else state[HOST_WORDS + 1]
    return CONTINUE


def write_register(target: int, value: int, registers: Cells, state: Cells, records: Cells) -> int:
    """Write a register, and record changes of the two special registers that the host can read. Return a stop code."""
    if target > S_ADDRESS or target == 14:
        registers[target] = value
    elif target == S_ADDRESS:
        registers[target] = value & 0xFFFF
    elif target >= 12:
        registers[target] = value
        append_record(COUNTER, target - 11, compute_tick(state), value, state, records)
    elif target == 2:
        return write_configuration(value, registers, state)
    elif target == 1:
        registers[1] = value
    elif state[LFSR_MODE] == 3:
        registers[1] = compute_next_random(registers[1])
    return CONTINUE


# -- jumps, calls and returns, the end, and waits for the clock


def is_polling_time(code: Cells, row: int, target: int, state: Cells) -> bool:
    """Return True if a taken jump only polls the time: it jumps to itself, or to a TEST of the time just before it."""
    if code[row + CONDITION] != 2 or code[row + LEFT] != S_TIME or code[row + ALU] != SUBTRACT:
        return False
    if target == state[PC]:
        return True
    previous_row = row - ROW_LENGTH
    is_plain_test = (
        previous_row >= 0 and code[previous_row + ACTION] == NOTHING and code[previous_row + TARGET] < 0
    )
    return target == state[PC] - 1 and is_plain_test and code[previous_row + LEFT] == S_TIME


def execute_call(target: int, state: Cells) -> int:
    """Push the address of the next instruction and jump. Return TOO_DEEP if the stack is full, otherwise CONTINUE."""
    if state[CALL_DEPTH] == MAX_CALL_DEPTH:
        return TOO_DEEP
    state[STACK + state[CALL_DEPTH]] = state[PC] + 1
    state[CALL_DEPTH] += 1
    return take_jump(target, state)


def execute_return(state: Cells) -> int:
    """Execute the return from a call. The result is TOO_SHALLOW if the stack is empty, otherwise CONTINUE."""
    if state[CALL_DEPTH] == 0:
        return TOO_SHALLOW
    state[CALL_DEPTH] -= 1
    return take_jump(state[STACK + state[CALL_DEPTH]], state)


def take_jump(target: int, state: Cells) -> int:
    """Jump in three cycles, because the two instructions that were fetched meanwhile are discarded."""
    state[PC] = target
    state[CYCLE] += 3
    return CONTINUE


def execute_branch(code: Cells, row: int, result: int, registers: Cells, state: Cells) -> int:
    """Execute a jump, call or return. A jump to itself ends the program. A loop that polls the time is skipped."""
    action = code[row + ACTION]
    if action == RETURN:
        return execute_return(state)
    target = code[row + ADDRESS] if code[row + ADDRESS_IS_LITERAL] else registers[S_ADDRESS]
    if action == CALL:
        return execute_call(target, state)
    updates_flags = code[row + UPDATES_FLAGS]
    if target == state[PC] and not updates_flags:
        return execute_self_jump(code[row + CONDITION], registers, state)
    if updates_flags and is_polling_time(code, row, target, state):
        skip_polling(-convert_to_signed(result), 3 if target == state[PC] else 6, state)
    return take_jump(target, state)


def execute_self_jump(condition: int, registers: Cells, state: Cells) -> int:
    """Execute a jump to itself that keeps the flags. It is the end, or a wait that only an arithmetic unit can end."""
    if condition and (state[DIVIDER_READY_CYCLE] or state[MULTIPLIER_READY_CYCLE]):
        return take_jump(state[PC], state)
    deliver_results(INFINITE_CYCLE, registers, state)
    return ENDLESS_WAIT if condition else END


def skip_polling(missing_ticks: int, period: int, state: Cells) -> None:
    """Skip all passes of a loop that polls the time, except the last pass, which finds that the time is reached."""
    if missing_ticks > 0:
        cycle = -(-(compute_tick(state) + missing_ticks) * state[RATIO_CYCLES] // state[RATIO_TICKS])
        state[CYCLE] += max(0, -((state[CYCLE] + 3 - cycle) // period) * period)


# -- transfers between registers, memories and ports; commands to the units


def transfer_wave(
    code: Cells,
    row: int,
    registers: Cells,
    state: Cells,
    wmem: Cells,
    departure_ticks: Cells,
    pushed_counts: Cells,
    records: Cells,
) -> int:
    """Move six words between port, wave memory and wave registers. The memory is read before it is written."""
    wave_count = len(wmem) // WAVE_WORDS
    position = (
        (code[row + ADDRESS] if code[row + ADDRESS_IS_LITERAL] else registers[code[row + ADDRESS]])
        % wave_count
        * WAVE_WORDS
    )
    base = state[RECORD_COUNT] * RECORD_LENGTH + 3
    from_registers = code[row + FROM_REGISTERS]
    for word in range(WAVE_WORDS):
        register_value = registers[WAVE_REGISTERS + word] & get_word_mask(word)
        wave_word = register_value if from_registers else wmem[position + word]
        records[base + word] = wave_word
        if code[row + TO_MEMORY]:
            wmem[position + word] = register_value
        if code[row + TO_REGISTERS]:
            registers[WAVE_REGISTERS + word] = wave_word
    if not code[row + TO_PORT]:
        return CONTINUE
    scheduled_tick = compute_scheduled_tick(code, row, registers, state)
    if scheduled_tick >> 47:
        return TOO_EARLY
    port = code[row + PORT]
    departure_tick = enqueue_word(port, scheduled_tick, state, departure_ticks, pushed_counts)
    append_record(WAVE_OUT, port, departure_tick, records[base], state, records)
    return CONTINUE


def get_word_mask(word: int) -> int:
    """Return the mask of a word of a wave: 24 bits for the envelope address, 16 for the configuration, otherwise 32."""
    if word == 2:
        return 0xFF_FFFF
    return 0xFFFF if word == 5 else WORD_MASK


def send_port_word(
    code: Cells,
    row: int,
    registers: Cells,
    state: Cells,
    departure_ticks: Cells,
    pushed_counts: Cells,
    records: Cells,
) -> int:
    """Send a word to a data port, or a level to a trigger port (port numbers from 32)."""
    scheduled_tick = compute_scheduled_tick(code, row, registers, state)
    if scheduled_tick >> 47:
        return TOO_EARLY
    port = code[row + PORT]
    value = code[row + ADDRESS] if code[row + ADDRESS_IS_LITERAL] else registers[code[row + ADDRESS]]
    departure_tick = enqueue_word(64 + port, scheduled_tick, state, departure_ticks, pushed_counts)
    if port >= 32:
        append_record(TRIGGER_PIN, port - 32, departure_tick, value & 1, state, records)
    else:
        append_record(DATA_PIN, port, departure_tick, value, state, records)
    return CONTINUE


def start_calculation(code: Cells, row: int, data: int, registers: Cells, state: Cells) -> None:
    """Start the multiplier or the divider."""
    d = read_operand(code[row + ADDRESS_OFFSET], registers, state)
    if code[row + ACTION] == DIVIDE:
        start_divider(d, data, registers, state)
        return
    a, c = (
        read_operand(code[row + LEFT], registers, state),
        read_operand(code[row + ADDRESS], registers, state),
    )
    start_multiplier(code[row + OPERATION], a, data, c, d, registers, state)


def execute_command(code: Cells, row: int, registers: Cells, state: Cells) -> None:
    """Execute a command for the time reference (unsigned), the flag, the multiplier or the divider."""
    action, operation = code[row + ACTION], code[row + OPERATION]
    data = (
        code[row + LITERAL]
        if code[row + DATA_IS_LITERAL]
        else read_operand(code[row + RIGHT], registers, state)
    )
    if action == REFERENCE:
        if operation & 4:
            state[REFERENCE_TICK] = data
        elif operation & 8:
            state[REFERENCE_TICK] = (state[REFERENCE_TICK] + data) & TIME_MASK
    elif action == FLAG:
        if operation & 3:
            state[INTERNAL_FLAG] = operation & 1
        elif operation & 4:
            state[INTERNAL_FLAG] ^= 1
    else:
        start_calculation(code, row, data, registers, state)


def select_written_value(code: Cells, row: int, result: int, registers: Cells, dmem: Cells) -> int:
    """Return the value to write to a register: result, word of the data memory, or literal."""
    source = code[row + SOURCE]
    if source == FROM_DMEM:
        return dmem[compute_data_address(code, row, registers) % len(dmem)]
    return code[row + LITERAL] if source == FROM_LITERAL else result


def compute_data_address(code: Cells, row: int, registers: Cells) -> int:
    """Return an address of the data memory: a literal or register, plus another register."""
    position = code[row + ADDRESS] if code[row + ADDRESS_IS_LITERAL] else registers[code[row + ADDRESS]]
    return position + registers[code[row + ADDRESS_OFFSET]]


# -- instructions


def execute_action(
    code: Cells,
    row: int,
    result: int,
    registers: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    departure_ticks: Cells,
    pushed_counts: Cells,
    records: Cells,
) -> int:
    """Execute the action of an instruction that is not a branch. Return a stop code or CONTINUE."""
    action = code[row + ACTION]
    if action == WAVE:
        return transfer_wave(code, row, registers, state, wmem, departure_ticks, pushed_counts, records)
    if action == PIN:
        return send_port_word(code, row, registers, state, departure_ticks, pushed_counts, records)
    if action == STORE:
        data = code[row + LITERAL] if code[row + DATA_IS_LITERAL] else result
        dmem[compute_data_address(code, row, registers) % len(dmem)] = data
    elif action == INPUT:
        state[INPUT_PORT] = code[row + PORT] & 15
        return READ_INPUT
    elif REFERENCE <= action <= DIVIDE:
        execute_command(code, row, registers, state)
    return CONTINUE


def skip_instruction(code: Cells, row: int, state: Cells) -> int:
    """Skip an instruction whose condition does not hold. RET ignores its condition, so execute it."""
    cycle = state[CYCLE]
    if code[row + ACTION] == RETURN:
        stop_code = execute_return(state)
    else:
        state[PC] += 1
        state[CYCLE] += 1
        stop_code = CONTINUE
    mark_ready(code[row + ADDRESS_EFFECTS], cycle, state)
    return stop_code


def finish_instruction(
    code: Cells,
    row: int,
    result: int,
    value: int,
    cycle: int,
    stop_code: int,
    registers: Cells,
    state: Cells,
    records: Cells,
) -> int:
    """Write register and flags, and return the stop code. For an error, set the program counter to the instruction."""
    if code[row + TARGET] >= 0 and stop_code in (CONTINUE, READ_INPUT):
        state[LOADED_REGISTER] = code[row + TARGET]
        stop_code = write_register(code[row + TARGET], value, registers, state, records) or stop_code
    if code[row + UPDATES_FLAGS]:
        state[ZERO_FLAG] = int(result == 0)
        state[SIGN_FLAG] = result >> 31
    mark_ready(code[row + EXECUTED_EFFECTS], cycle, state)
    if stop_code > READ_INPUT:
        state[PC] = row // ROW_LENGTH
    return stop_code


def execute_instruction(
    code: Cells,
    registers: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    departure_ticks: Cells,
    pushed_counts: Cells,
    records: Cells,
) -> int:
    """Execute one instruction, and return CONTINUE or the reason to stop."""
    row = state[PC] * ROW_LENGTH
    stall_until_ready(code[row + NEEDED_RESOURCES], state)
    stall_for_load(code, row, state)
    action = code[row + ACTION]
    left = read_operand(code[row + LEFT], registers, state)
    if code[row + LEFT] == 1 and state[LFSR_MODE] == 2:
        registers[1] = compute_next_random(registers[1])
    if not is_condition_met(code[row + CONDITION], registers, state):
        return skip_instruction(code, row, state)
    if action >= FIRST_UNSIMULATED:
        return action
    right = (
        code[row + LITERAL]
        if code[row + RIGHT_IS_LITERAL]
        else read_operand(code[row + RIGHT], registers, state)
    )
    result = compute_alu_result(code[row + ALU], left, right)
    value = select_written_value(code, row, result, registers, dmem)
    if JUMP <= action <= CALL and not code[row + ADDRESS_IS_LITERAL]:
        state[CYCLE] = max(state[CYCLE], state[READY_ADDRESS])
    cycle = state[CYCLE]
    if JUMP <= action <= RETURN:
        stop_code = execute_branch(code, row, result, registers, state)
    else:
        stop_code = execute_action(
            code, row, result, registers, state, dmem, wmem, departure_ticks, pushed_counts, records
        )
        state[PC] += 1
        state[CYCLE] += 1
    return finish_instruction(code, row, result, value, cycle, stop_code, registers, state, records)


def execute(
    code: Cells,
    registers: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    departure_ticks: Cells,
    pushed_counts: Cells,
    records: Cells,
) -> int:
    """Execute instructions from the current state until the processor has to act, and return the stop code."""
    stop_code = CONTINUE
    while stop_code == CONTINUE:
        if state[PC] >= state[PROGRAM_LENGTH]:
            return OUTSIDE_PROGRAM
        if state[STEP_COUNT] >= state[PAUSE_AT]:
            return PAUSE
        if state[RECORD_COUNT] + 2 > MAX_RECORDS:
            return RECORDS_FULL
        state[STEP_COUNT] += 1
        stop_code = execute_instruction(
            code, registers, state, dmem, wmem, departure_ticks, pushed_counts, records
        )
    return stop_code
