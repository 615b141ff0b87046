"""The machine: functions over flat arrays of integers, which numba can compile unchanged.

The functions run on Python lists. `compiled` compiles the same functions for arrays of 64-bit integers. Therefore this
module uses no objects, exceptions or unbounded integers: registers are 0..2**32-1, times have 48 bits, and `execute`
returns a stop code when `processor` has to act.

The arithmetic has the widths and signs of the firmware (AB_alu, arith, div_r and LFSR in `_qproc_ips.sv`).
"""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.cells import (
    ACTION,
    ALU,
    ARITHMETIC_HIGH,
    ARITHMETIC_LOW,
    CALL,
    CONDITION,
    COUNTER,
    CYCLE,
    CYCLES,
    DATA_LITERAL,
    DATA_PIN,
    DATA_SOURCE,
    DEPTH,
    DIVIDE,
    DIVIDED_AT,
    END,
    FIELD,
    FIRST_REFUSED,
    FLAG,
    FLAG_SOURCE,
    FLIPFLOP,
    FROM_DMEM,
    FROM_LITERAL,
    FROM_REGISTERS,
    FULL,
    GO,
    HOST,
    INPUT,
    INPUT_PORT,
    JUMP,
    LEAVES,
    LEFT,
    LENGTH,
    LFSR_MODE,
    LIFO,
    LITERAL,
    LOADED,
    LONG,
    MASK,
    MAX_RECORDS,
    MULTIPLIED_AT,
    NEEDS,
    NOTHING,
    OFFSET,
    OPERATION,
    OUTSIDE,
    PAUSE,
    PAUSE_AT,
    PC,
    PIN,
    PLACE,
    PLACE_LITERAL,
    PORT,
    PRODUCT_HIGH,
    PRODUCT_LOW,
    QUOTIENT,
    READ,
    READY_ADDRESS,
    READY_FLAG,
    READY_LOADED,
    RECORD,
    RECORDS,
    REFERENCE,
    REMAINDER,
    RETURN,
    RIGHT,
    RIGHT_LITERAL,
    S_ADDRESS,
    S_STATUS,
    S_TIME,
    SETS,
    SIGN,
    SOURCE,
    SPACING,
    STACK,
    STACK_DEPTH,
    START,
    STEPS,
    STORE,
    STUCK,
    SUBTRACT,
    TARGET,
    TICKS,
    TIMED,
    TO_MEMORY,
    TO_PORT,
    TO_REGISTERS,
    TOO_DEEP,
    TOO_EARLY,
    TOO_SHALLOW,
    TRIGGER_PIN,
    UPDATES,
    WAVE,
    WAVE_OUT,
    WAVE_REGISTERS,
    WAVE_WORDS,
    WIDTH,
    ZERO,
    Cells,
)
from sim.twins.rfsoc.tproc_v2.instruction import EFFECT_CELL, EFFECT_DELAY

# -- unsigned 32-bit arithmetic


def sign(value: int) -> int:
    """Return 32 bits as a signed number.

    >>> sign(0xFFFF_FFFE)
    -2
    """
    return value - ((value & 0x8000_0000) << 1)


def wrap(value: int, width: int) -> int:
    """Return the low bits of a number as a signed number.

    >>> wrap(5, 3)
    -3
    """
    value &= (1 << width) - 1
    return value - ((value >> (width - 1)) << width)


def alu(operation: int, a: int, b: int) -> int:
    """Return the result of the arithmetic unit. Even operations are arithmetic, odd operations are logic.

    Shifts use four bits of `b`.

    >>> hex(alu(2, 3, 5))
    '0xfffffffe'
    """
    if operation & 1:
        return logic(operation >> 1, a, b) & MASK
    selector = operation >> 1
    if selector == 0:
        result = a + b
    elif selector == 1:
        result = a - b
    elif selector == 2:
        result = a & b
    elif selector == 3:
        result = sign(a) >> (b & 15)
    elif selector == 4:
        result = -b if b >> 31 else b
    elif selector == 5:
        result = a >> 16
    elif selector == 6:
        result = a & 0xFFFF
    else:
        result = (a & 0xFFFF) << 16 | a >> 16
    return result & MASK


def logic(selector: int, a: int, b: int) -> int:
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
        result = parity(a)
    elif selector == 6:
        result = a << (b & 15)
    else:
        result = a >> (b & 15)
    return result


def parity(a: int) -> int:
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
    left = wrap(a, 27)
    if operation >= 6:
        left = wrap(d, 27) - left
    elif operation >= 3:
        left = wrap(d, 27) + left
    product = wrap(left, 27) * wrap(b, 18)
    if operation % 3 == 1:
        product += sign(c)
    elif operation % 3 == 2:
        product -= sign(c)
    return wrap(product, 46)


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
    return (lfsr << 1 | new_bit) & MASK


# -- multiplier and divider: the state keeps their results until they are ready

DIVIDE_CYCLES = 34
MULTIPLY_CYCLES = 6
"""Cycles from the instruction that starts a unit until its result can be read: numbers of states of div_r and arith."""
READY_MULTIPLIER, NEW_PRODUCT, READY_DIVIDER, NEW_QUOTIENT = 1, 2, 4, 8
"""Bits of `s_status`."""
FOREVER = 1 << 60


def start_divider(dividend: int, divisor: int, reg: Cells, state: Cells) -> None:
    """Start a division, which replaces an unfinished division. In the last cycle of a division, do nothing."""
    deliver(state[CYCLE] + 1, reg, state)
    if state[DIVIDED_AT] - state[CYCLE] == 2:
        return
    state[QUOTIENT] = compute_quotient(dividend, divisor)
    state[REMAINDER] = dividend - state[QUOTIENT] * divisor
    state[DIVIDED_AT] = state[CYCLE] + DIVIDE_CYCLES
    reg[S_STATUS] &= READY_MULTIPLIER | NEW_PRODUCT


def start_multiplier(operation: int, a: int, b: int, c: int, d: int, reg: Cells, state: Cells) -> None:
    """Start a multiplication with four inputs."""
    product = multiply(operation, a, b, c, d)
    state[PRODUCT_LOW] = product & MASK
    state[PRODUCT_HIGH] = product >> 32 & MASK
    state[MULTIPLIED_AT] = state[CYCLE] + MULTIPLY_CYCLES
    reg[S_STATUS] &= READY_DIVIDER | NEW_QUOTIENT


def deliver(now: int, reg: Cells, state: Cells) -> None:
    """Write the results that are ready at cycle `now` of the core into the registers."""
    if 0 < state[DIVIDED_AT] <= now:
        reg[4] = state[QUOTIENT]
        reg[5] = state[REMAINDER]
        reg[S_STATUS] |= READY_DIVIDER | NEW_QUOTIENT
        state[DIVIDED_AT] = 0
    if 0 < state[MULTIPLIED_AT] <= now:
        state[ARITHMETIC_LOW] = state[PRODUCT_LOW]
        state[ARITHMETIC_HIGH] = state[PRODUCT_HIGH]
        reg[3] = state[PRODUCT_LOW]
        if reg[2] & 15 == 1:
            reg[6] = state[PRODUCT_LOW]
            reg[7] = state[PRODUCT_HIGH]
        reg[S_STATUS] |= READY_MULTIPLIER | NEW_PRODUCT
        state[MULTIPLIED_AT] = 0


# -- time: the current tick, stalls (`qcore_ctrl_hazard.sv`), queues (`qproc_dispatcher.sv`)


def tick(state: Cells) -> int:
    """Return the current tick of the timing clock."""
    return state[CYCLE] * state[TICKS] // state[CYCLES]


def wait_until(time: int, state: Cells) -> None:
    """Stall the core until a tick. Do nothing if the tick has passed."""
    state[CYCLE] = max(state[CYCLE], -(-time * state[CYCLES] // state[TICKS]))


def stall(needs: int, state: Cells) -> None:
    """Stall an instruction until the resources that it needs are ready."""
    cell = READY_FLAG
    while needs:
        if needs & 1:
            state[CYCLE] = max(state[CYCLE], state[cell])
        needs >>= 1
        cell += 1


def stall_for_load(code: Cells, row: int, state: Cells) -> None:
    """Stall an instruction that uses the register which the previous instruction loads from data memory."""
    if state[READY_LOADED] > state[CYCLE]:
        for column in (LEFT, RIGHT, FIELD, OFFSET):
            if code[row + column] == state[LOADED]:
                state[CYCLE] = max(state[CYCLE], state[READY_LOADED])


def mark_ready(sets: int, cycle: int, state: Cells) -> None:
    """Set the cycles at which resources are ready again. An instruction of this cycle has the effects `sets`."""
    effect = 0
    while sets:
        if sets & 1:
            cell = EFFECT_CELL[effect]
            state[cell] = max(state[cell], cycle + EFFECT_DELAY[effect])
        sets >>= 1
        effect += 1


def record(kind: int, port: int, time: int, value: int, state: Cells, records: Cells) -> None:
    """Append a record of an event that is visible outside the processor."""
    base = state[RECORDS] * RECORD
    records[base] = kind
    records[base + 1] = port
    records[base + 2] = time
    records[base + 3] = value
    state[RECORDS] += 1


def send(queue: int, scheduled: int, state: Cells, ring: Cells, pushed: Cells) -> int:
    """Put a word into the queue of its port, and return the tick at which it leaves.

    The word leaves at the scheduled tick, or later if the core is late or the previous word left less than `SPACING`
    ticks before. A full queue stalls the core until its oldest word has left.
    """
    count, depth = pushed[queue], state[DEPTH]
    base = queue * depth
    time = max(scheduled, tick(state))
    if count:
        time = max(time, ring[base + (count - 1) % depth] + SPACING)
    ring[base + count % depth] = time
    pushed[queue] = count + 1
    if count + 1 >= depth:
        wait_until(ring[base + (count + 1) % depth], state)
    return time


def schedule(code: Cells, row: int, reg: Cells, state: Cells) -> int:
    """Return the tick that a port instruction requests: the reference plus a literal or `s_out_time`."""
    offset = code[row + LITERAL] if code[row + TIMED] else reg[14]
    return (state[START] + sign(offset)) & LONG


# -- registers and conditions


def operand(index: int, reg: Cells, state: Cells) -> int:
    """Return the value of a register. The value of `s_usr_time` is the time since the reference."""
    if index == S_TIME:
        return (tick(state) - state[START]) & MASK
    if 3 <= index <= S_STATUS:
        deliver(state[CYCLE], reg, state)
    return reg[index]


def is_met(condition: int, reg: Cells, state: Cells) -> bool:
    """Return True if a condition holds: always, Z, S, NZ, NS, F, NF, never."""
    if condition == 0:
        return True
    if condition == 7:
        return False
    if condition in (1, 3):
        value = state[ZERO]
    elif condition in (2, 4):
        value = state[SIGN]
    elif reg[2] >> 4 == 3:
        deliver(state[CYCLE], reg, state)
        value = int(reg[S_STATUS] & 0b1010 != 0)
    else:
        value = state[FLIPFLOP]
    expected = 1 if condition in (1, 2, 5) else 0
    return value == expected


def configure(value: int, reg: Cells, state: Cells) -> int:
    """Write `s_cfg`, which selects the sources of flag and core data. Its upper half clears bits of `s_status`.

    Return GO, or FLAG_SOURCE or DATA_SOURCE for a source that is not simulated.
    """
    deliver(state[CYCLE], reg, state)
    reg[2] = value & 0xFF
    cleared_bits = (value >> 16 & 1) << 1 | (value >> 17 & 1) << 3
    reg[S_STATUS] &= MASK - cleared_bits
    data_source, flag_source = value & 15, value >> 4 & 15
    if flag_source not in (0, 3):
        return FLAG_SOURCE
    if data_source > 1:
        return DATA_SOURCE
    reg[6] = state[ARITHMETIC_LOW] if data_source else state[HOST]
    reg[7] = state[ARITHMETIC_HIGH] if data_source else state[HOST + 1]
    return GO


def write_register(target: int, value: int, reg: Cells, state: Cells, records: Cells) -> int:
    """Write a register, and record changes of the two special registers that the host can read. Return a stop code."""
    if target > S_ADDRESS or target == 14:
        reg[target] = value
    elif target == S_ADDRESS:
        reg[target] = value & 0xFFFF
    elif target >= 12:
        reg[target] = value
        record(COUNTER, target - 11, tick(state), value, state, records)
    elif target == 2:
        return configure(value, reg, state)
    elif target == 1:
        reg[1] = value
    elif state[LFSR_MODE] == 3:
        reg[1] = compute_next_random(reg[1])
    return GO


# -- jumps, calls and returns, the end, and waits for the clock


def polls_time(code: Cells, row: int, target: int, state: Cells) -> bool:
    """Return True if a taken jump only polls the time: it jumps to itself, or to a TEST of the time just before it."""
    if code[row + CONDITION] != 2 or code[row + LEFT] != S_TIME or code[row + ALU] != SUBTRACT:
        return False
    if target == state[PC]:
        return True
    previous_row = row - WIDTH
    is_plain_test = (
        previous_row >= 0 and code[previous_row + ACTION] == NOTHING and code[previous_row + TARGET] < 0
    )
    return target == state[PC] - 1 and is_plain_test and code[previous_row + LEFT] == S_TIME


def call(target: int, state: Cells) -> int:
    """Push the address of the next instruction and jump. Return TOO_DEEP if the stack is full, otherwise GO."""
    if state[LIFO] == STACK_DEPTH:
        return TOO_DEEP
    state[STACK + state[LIFO]] = state[PC] + 1
    state[LIFO] += 1
    return take_jump(target, state)


def return_from_call(state: Cells) -> int:
    """Execute the return from a call. The result is TOO_SHALLOW if the stack is empty, otherwise GO."""
    if state[LIFO] == 0:
        return TOO_SHALLOW
    state[LIFO] -= 1
    return take_jump(state[STACK + state[LIFO]], state)


def take_jump(target: int, state: Cells) -> int:
    """Jump in three cycles, because the two instructions that were fetched meanwhile are discarded."""
    state[PC] = target
    state[CYCLE] += 3
    return GO


def branch(code: Cells, row: int, result: int, reg: Cells, state: Cells) -> int:
    """Execute a jump, call or return. A jump to itself ends the program. A loop that polls the time is skipped."""
    action = code[row + ACTION]
    if action == RETURN:
        return return_from_call(state)
    target = code[row + PLACE] if code[row + PLACE_LITERAL] else reg[S_ADDRESS]
    if action == CALL:
        return call(target, state)
    updates = code[row + UPDATES]
    if target == state[PC] and not updates:
        return jump_to_itself(code[row + CONDITION], reg, state)
    if updates and polls_time(code, row, target, state):
        skip_polling(-sign(result), 3 if target == state[PC] else 6, state)
    return take_jump(target, state)


def jump_to_itself(condition: int, reg: Cells, state: Cells) -> int:
    """Execute a jump to itself that keeps the flags. It is the end, or a wait that only an arithmetic unit can end."""
    if condition and (state[DIVIDED_AT] or state[MULTIPLIED_AT]):
        return take_jump(state[PC], state)
    deliver(FOREVER, reg, state)
    return STUCK if condition else END


def skip_polling(missing_ticks: int, period: int, state: Cells) -> None:
    """Skip all passes of a loop that polls the time, except the last pass, which finds that the time is reached."""
    if missing_ticks > 0:
        cycle = -(-(tick(state) + missing_ticks) * state[CYCLES] // state[TICKS])
        state[CYCLE] += max(0, -((state[CYCLE] + 3 - cycle) // period) * period)


# -- transfers between registers, memories and ports; commands to the units


def move_wave(
    code: Cells, row: int, reg: Cells, state: Cells, wmem: Cells, ring: Cells, pushed: Cells, records: Cells
) -> int:
    """Move six words between port, wave memory and wave registers. The memory is read before it is written."""
    size = len(wmem) // WAVE_WORDS
    position = (
        (code[row + PLACE] if code[row + PLACE_LITERAL] else reg[code[row + PLACE]]) % size * WAVE_WORDS
    )
    base = state[RECORDS] * RECORD + 3
    from_registers = code[row + FROM_REGISTERS]
    for word in range(WAVE_WORDS):
        register = reg[WAVE_REGISTERS + word] & get_word_mask(word)
        wave_word = register if from_registers else wmem[position + word]
        records[base + word] = wave_word
        if code[row + TO_MEMORY]:
            wmem[position + word] = register
        if code[row + TO_REGISTERS]:
            reg[WAVE_REGISTERS + word] = wave_word
    if not code[row + TO_PORT]:
        return GO
    scheduled = schedule(code, row, reg, state)
    if scheduled >> 47:
        return TOO_EARLY
    port = code[row + PORT]
    time = send(port, scheduled, state, ring, pushed)
    record(WAVE_OUT, port, time, records[base], state, records)
    return GO


def get_word_mask(word: int) -> int:
    """Return the mask of a word of a wave: 24 bits for the envelope address, 16 for the configuration, otherwise 32."""
    if word == 2:
        return 0xFF_FFFF
    return 0xFFFF if word == 5 else MASK


def move_pin(
    code: Cells, row: int, reg: Cells, state: Cells, ring: Cells, pushed: Cells, records: Cells
) -> int:
    """Send a word to a data port, or a level to a trigger port (port numbers from 32)."""
    scheduled = schedule(code, row, reg, state)
    if scheduled >> 47:
        return TOO_EARLY
    port = code[row + PORT]
    value = code[row + PLACE] if code[row + PLACE_LITERAL] else reg[code[row + PLACE]]
    time = send(64 + port, scheduled, state, ring, pushed)
    if port >= 32:
        record(TRIGGER_PIN, port - 32, time, value & 1, state, records)
    else:
        record(DATA_PIN, port, time, value, state, records)
    return GO


def calculate(code: Cells, row: int, data: int, reg: Cells, state: Cells) -> None:
    """Start the multiplier or the divider."""
    d = operand(code[row + OFFSET], reg, state)
    if code[row + ACTION] == DIVIDE:
        start_divider(d, data, reg, state)
        return
    a, c = operand(code[row + LEFT], reg, state), operand(code[row + PLACE], reg, state)
    start_multiplier(code[row + OPERATION], a, data, c, d, reg, state)


def control(code: Cells, row: int, reg: Cells, state: Cells) -> None:
    """Execute a command for the time reference (unsigned), the flag, the multiplier or the divider."""
    action, operation = code[row + ACTION], code[row + OPERATION]
    data = code[row + LITERAL] if code[row + DATA_LITERAL] else operand(code[row + RIGHT], reg, state)
    if action == REFERENCE:
        if operation & 4:
            state[START] = data
        elif operation & 8:
            state[START] = (state[START] + data) & LONG
    elif action == FLAG:
        if operation & 3:
            state[FLIPFLOP] = operation & 1
        elif operation & 4:
            state[FLIPFLOP] ^= 1
    else:
        calculate(code, row, data, reg, state)


def read_data(code: Cells, row: int, result: int, reg: Cells, dmem: Cells) -> int:
    """Return the value to write to a register: result, word of the data memory, or literal."""
    source = code[row + SOURCE]
    if source == FROM_DMEM:
        return dmem[compute_data_address(code, row, reg) % len(dmem)]
    return code[row + LITERAL] if source == FROM_LITERAL else result


def compute_data_address(code: Cells, row: int, reg: Cells) -> int:
    """Return an address of the data memory: a literal or register, plus another register."""
    position = code[row + PLACE] if code[row + PLACE_LITERAL] else reg[code[row + PLACE]]
    return position + reg[code[row + OFFSET]]


# -- instructions


def execute_action(
    code: Cells,
    row: int,
    result: int,
    reg: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    ring: Cells,
    pushed: Cells,
    records: Cells,
) -> int:
    """Execute the action of an instruction that is not a branch. Return a stop code or GO."""
    action = code[row + ACTION]
    if action == WAVE:
        return move_wave(code, row, reg, state, wmem, ring, pushed, records)
    if action == PIN:
        return move_pin(code, row, reg, state, ring, pushed, records)
    if action == STORE:
        data = code[row + LITERAL] if code[row + DATA_LITERAL] else result
        dmem[compute_data_address(code, row, reg) % len(dmem)] = data
    elif action == INPUT:
        state[INPUT_PORT] = code[row + PORT] & 15
        return READ
    elif REFERENCE <= action <= DIVIDE:
        control(code, row, reg, state)
    return GO


def skip_instruction(code: Cells, row: int, state: Cells) -> int:
    """Skip an instruction whose condition does not hold. RET ignores its condition, so execute it."""
    cycle = state[CYCLE]
    if code[row + ACTION] == RETURN:
        stop = return_from_call(state)
    else:
        state[PC] += 1
        state[CYCLE] += 1
        stop = GO
    mark_ready(code[row + LEAVES], cycle, state)
    return stop


def finish_instruction(
    code: Cells,
    row: int,
    result: int,
    value: int,
    cycle: int,
    stop: int,
    reg: Cells,
    state: Cells,
    records: Cells,
) -> int:
    """Write register and flags, and return the stop code. For an error, set the program counter to the instruction."""
    if code[row + TARGET] >= 0 and stop in (GO, READ):
        state[LOADED] = code[row + TARGET]
        stop = write_register(code[row + TARGET], value, reg, state, records) or stop
    if code[row + UPDATES]:
        state[ZERO] = int(result == 0)
        state[SIGN] = result >> 31
    mark_ready(code[row + SETS], cycle, state)
    if stop > READ:
        state[PC] = row // WIDTH
    return stop


def step(
    code: Cells,
    reg: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    ring: Cells,
    pushed: Cells,
    records: Cells,
) -> int:
    """Execute one instruction, and return GO or the reason to stop."""
    row = state[PC] * WIDTH
    stall(code[row + NEEDS], state)
    stall_for_load(code, row, state)
    action = code[row + ACTION]
    left = operand(code[row + LEFT], reg, state)
    if code[row + LEFT] == 1 and state[LFSR_MODE] == 2:
        reg[1] = compute_next_random(reg[1])
    if not is_met(code[row + CONDITION], reg, state):
        return skip_instruction(code, row, state)
    if action >= FIRST_REFUSED:
        return action
    right = code[row + LITERAL] if code[row + RIGHT_LITERAL] else operand(code[row + RIGHT], reg, state)
    result = alu(code[row + ALU], left, right)
    value = read_data(code, row, result, reg, dmem)
    if JUMP <= action <= CALL and not code[row + PLACE_LITERAL]:
        state[CYCLE] = max(state[CYCLE], state[READY_ADDRESS])
    cycle = state[CYCLE]
    if JUMP <= action <= RETURN:
        stop = branch(code, row, result, reg, state)
    else:
        stop = execute_action(code, row, result, reg, state, dmem, wmem, ring, pushed, records)
        state[PC] += 1
        state[CYCLE] += 1
    return finish_instruction(code, row, result, value, cycle, stop, reg, state, records)


def execute(
    code: Cells,
    reg: Cells,
    state: Cells,
    dmem: Cells,
    wmem: Cells,
    ring: Cells,
    pushed: Cells,
    records: Cells,
) -> int:
    """Execute instructions from the current state until the processor has to act, and return the stop code."""
    stop = GO
    while stop == GO:
        if state[PC] >= state[LENGTH]:
            return OUTSIDE
        if state[STEPS] >= state[PAUSE_AT]:
            return PAUSE
        if state[RECORDS] + 2 > MAX_RECORDS:
            return FULL
        state[STEPS] += 1
        stop = step(code, reg, state, dmem, wmem, ring, pushed, records)
    return stop
