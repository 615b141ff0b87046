"""The machine itself: plain functions over flat arrays of integers, so that numba may compile them as they stand.

Called with Python lists they run as they are; `compiled` makes machine code of the very same functions for arrays of
64-bit integers. Hence no objects, no exceptions and no unbounded integers in here: registers hold 0..2**32-1, times fit
48 bits, and what the machine cannot settle by itself ends `execute` with a stop code for `processor` to handle.

Widths and signs of the arithmetic are the firmware's (AB_alu, arith, div_r and LFSR in `_qproc_ips.sv`).
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
    ROOM,
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

# -- arithmetic, of 32 bits without sign


def sign(value: int) -> int:
    """Return 32 bits as a number with sign.

    >>> sign(0xFFFF_FFFE)
    -2
    """
    return value - ((value & 0x8000_0000) << 1)


def wrap(value: int, width: int) -> int:
    """Return the low bits of a number as a number with sign.

    >>> wrap(5, 3)
    -3
    """
    value &= (1 << width) - 1
    return value - ((value >> (width - 1)) << width)


def alu(operation: int, a: int, b: int) -> int:
    """Return the arithmetic unit: even operations count, odd ones are logic. Shifts look at four bits of `b`.

    >>> hex(alu(2, 3, 5))
    '0xfffffffe'
    """
    if operation & 1:
        return logic(operation >> 1, a, b) & MASK
    which = operation >> 1
    if which == 0:
        result = a + b
    elif which == 1:
        result = a - b
    elif which == 2:
        result = a & b
    elif which == 3:
        result = sign(a) >> (b & 15)
    elif which == 4:
        result = -b if b >> 31 else b
    elif which == 5:
        result = a >> 16
    elif which == 6:
        result = a & 0xFFFF
    else:
        result = (a & 0xFFFF) << 16 | a >> 16
    return result & MASK


def logic(which: int, a: int, b: int) -> int:
    """NOT, OR, XOR, CAT, a reserved one (zero), parity, shift left, shift right."""
    if which == 0:
        result = ~a
    elif which == 1:
        result = a | b
    elif which == 2:
        result = a ^ b
    elif which == 3:
        result = (a & 0xFFFF) << 16 | b & 0xFFFF
    elif which == 4:
        result = 0
    elif which == 5:
        result = parity(a)
    elif which == 6:
        result = a << (b & 15)
    else:
        result = a >> (b & 15)
    return result


def parity(a: int) -> int:
    """Return 1 for an odd number of ones among 32 bits."""
    for shift in (16, 8, 4, 2, 1):
        a ^= a >> shift
    return a & 1


def multiply(operation: int, a: int, b: int, c: int, d: int) -> int:
    """Return the multiplier: (A, D+A or D-A) x B, then nothing, +C or -C.

    27 x 18 bits with sign, sum of 46; the inner sum wraps at 27 bits, as the block's adder does.

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


def quotient(a: int, b: int) -> int:
    """Return the divider's result: 31 bits without sign, at most 2**31 - 1, which a division by zero gives.

    >>> quotient(17, 5), quotient(17, 0) == 2**31 - 1
    (3, True)
    """
    largest = 0x7FFF_FFFF
    return min(a // b, largest) if b else largest


def next_random(lfsr: int) -> int:
    """Return the next word of the random register: shift left, in comes the inverted parity of bits 31, 21, 1 and 0.

    >>> next_random(0), next_random(1)
    (1, 2)
    """
    new = 1 ^ (lfsr >> 31 ^ lfsr >> 21 ^ lfsr >> 1 ^ lfsr) & 1
    return (lfsr << 1 | new) & MASK


# -- multiplier and divider: their results stand beside the registers until they are ready

DIVIDE_CYCLES = 34
MULTIPLY_CYCLES = 6
"""From the instruction that starts a unit to the first that finds the result: states of div_r and arith."""
READY_MULTIPLIER, NEW_PRODUCT, READY_DIVIDER, NEW_QUOTIENT = 1, 2, 4, 8
"""Bits of `s_status`."""
EVER = 1 << 60


def start_divider(over: int, under: int, reg: Cells, state: Cells) -> None:
    """Take numerator and denominator; a division under way is lost, but in its last cycle it is the new one."""
    deliver(state[CYCLE] + 1, reg, state)
    if state[DIVIDED_AT] - state[CYCLE] == 2:
        return
    state[QUOTIENT] = quotient(over, under)
    state[REMAINDER] = over - state[QUOTIENT] * under
    state[DIVIDED_AT] = state[CYCLE] + DIVIDE_CYCLES
    reg[S_STATUS] &= READY_MULTIPLIER | NEW_PRODUCT


def start_multiplier(operation: int, a: int, b: int, c: int, d: int, reg: Cells, state: Cells) -> None:
    """Take the four inputs."""
    product = multiply(operation, a, b, c, d)
    state[PRODUCT_LOW] = product & MASK
    state[PRODUCT_HIGH] = product >> 32 & MASK
    state[MULTIPLIED_AT] = state[CYCLE] + MULTIPLY_CYCLES
    reg[S_STATUS] &= READY_DIVIDER | NEW_QUOTIENT


def deliver(now: int, reg: Cells, state: Cells) -> None:
    """Put into the registers what is ready by a cycle of the core."""
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


# -- time: the place on the time line, stalls (`qcore_ctrl_hazard.sv`), queues (`qproc_dispatcher.sv`)


def tick(state: Cells) -> int:
    """Return the core's place on the time line."""
    return state[CYCLE] * state[TICKS] // state[CYCLES]


def wait_until(time: int, state: Cells) -> None:
    """Stall the core until a tick; nothing happens when that has passed."""
    state[CYCLE] = max(state[CYCLE], -(-time * state[CYCLES] // state[TICKS]))


def stall(needs: int, state: Cells) -> None:
    """Insert bubbles of the pipeline before an instruction whose inputs are still on their way."""
    cell = READY_FLAG
    while needs:
        if needs & 1:
            state[CYCLE] = max(state[CYCLE], state[cell])
        needs >>= 1
        cell += 1


def stall_for_load(code: Cells, row: int, state: Cells) -> None:
    """Insert one bubble for an instruction that uses what the one before it reads from data memory."""
    if state[READY_LOADED] > state[CYCLE]:
        for column in (LEFT, RIGHT, FIELD, OFFSET):
            if code[row + column] == state[LOADED]:
                state[CYCLE] = max(state[CYCLE], state[READY_LOADED])


def settle(sets: int, cycle: int, state: Cells) -> None:
    """Note when what an instruction of this cycle leaves behind will be there."""
    effect = 0
    while sets:
        if sets & 1:
            cell = EFFECT_CELL[effect]
            state[cell] = max(state[cell], cycle + EFFECT_DELAY[effect])
        sets >>= 1
        effect += 1


def record(kind: int, port: int, time: int, value: int, state: Cells, records: Cells) -> None:
    """Note one thing that the world outside can see."""
    base = state[RECORDS] * RECORD
    records[base] = kind
    records[base + 1] = port
    records[base + 2] = time
    records[base + 3] = value
    state[RECORDS] += 1


def send(queue: int, scheduled: int, state: Cells, ring: Cells, pushed: Cells) -> int:
    """Put a word into the queue of its port; returns the tick at which it leaves.

    That is the scheduled one, unless the core comes later than that, or the word before has not left for long
    enough. A full queue holds the core until its oldest word has left.
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
    """Return the tick that an instruction for a port asks for: reference plus a literal, or plus `s_out_time`."""
    offset = code[row + LITERAL] if code[row + TIMED] else reg[14]
    return (state[START] + sign(offset)) & LONG


# -- registers and conditions


def operand(index: int, reg: Cells, state: Cells) -> int:
    """Return a register's value; `s_usr_time` is not one but the time since the reference."""
    if index == S_TIME:
        return (tick(state) - state[START]) & MASK
    if 3 <= index <= S_STATUS:
        deliver(state[CYCLE], reg, state)
    return reg[index]


def holds(condition: int, reg: Cells, state: Cells) -> bool:
    """Return the truth of a condition: always, Z, S, NZ, NS, F, NF, never."""
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
    wanted = 1 if condition in (1, 2, 5) else 0
    return value == wanted


def configure(value: int, reg: Cells, state: Cells) -> int:
    """Write `s_cfg`: where flag and core data come from; its upper half clears what the units have ready."""
    deliver(state[CYCLE], reg, state)
    reg[2] = value & 0xFF
    cleared = (value >> 16 & 1) << 1 | (value >> 17 & 1) << 3
    reg[S_STATUS] &= MASK - cleared
    data, flag = value & 15, value >> 4 & 15
    if flag not in (0, 3):
        return FLAG_SOURCE
    if data > 1:
        return DATA_SOURCE
    reg[6] = state[ARITHMETIC_LOW] if data else state[HOST]
    reg[7] = state[ARITHMETIC_HIGH] if data else state[HOST + 1]
    return GO


def put(target: int, value: int, reg: Cells, state: Cells, records: Cells) -> int:
    """Write a register. Two of the special ones are read from outside: their changes are recorded."""
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
        reg[1] = next_random(reg[1])
    return GO


# -- jumps, calls and returns, the end, and waits for the clock


def polls_time(code: Cells, row: int, target: int, state: Cells) -> bool:
    """Return True if a taken jump only waits for the clock: back to itself, or to the TEST of the same before it."""
    if code[row + CONDITION] != 2 or code[row + LEFT] != S_TIME or code[row + ALU] != SUBTRACT:
        return False
    if target == state[PC]:
        return True
    before = row - WIDTH
    bare = before >= 0 and code[before + ACTION] == NOTHING and code[before + TARGET] < 0
    return target == state[PC] - 1 and bare and code[before + LEFT] == S_TIME


def call(target: int, state: Cells) -> int:
    """Push the address of the next instruction and go."""
    if state[LIFO] == STACK_DEPTH:
        return TOO_DEEP
    state[STACK + state[LIFO]] = state[PC] + 1
    state[LIFO] += 1
    return leap(target, state)


def back(state: Cells) -> int:
    """Return from a call."""
    if state[LIFO] == 0:
        return TOO_SHALLOW
    state[LIFO] -= 1
    return leap(state[STACK + state[LIFO]], state)


def leap(target: int, state: Cells) -> int:
    """Go on elsewhere: the two instructions fetched meanwhile are thrown away."""
    state[PC] = target
    state[CYCLE] += 3
    return GO


def branch(code: Cells, row: int, result: int, reg: Cells, state: Cells) -> int:
    """Jump, call, return. A jump to itself is the end, and a wait for the clock is waited at once."""
    action = code[row + ACTION]
    if action == RETURN:
        return back(state)
    target = code[row + PLACE] if code[row + PLACE_LITERAL] else reg[S_ADDRESS]
    if action == CALL:
        return call(target, state)
    updates = code[row + UPDATES]
    if target == state[PC] and not updates:
        return stand(code[row + CONDITION], reg, state)
    if updates and polls_time(code, row, target, state):
        spin(-sign(result), 3 if target == state[PC] else 6, state)
    return leap(target, state)


def stand(condition: int, reg: Cells, state: Cells) -> int:
    """Execute a jump to itself that changes nothing: the end, or a wait that only a unit at work can end."""
    if condition and (state[DIVIDED_AT] or state[MULTIPLIED_AT]):
        return leap(state[PC], state)
    deliver(EVER, reg, state)
    return STUCK if condition else END


def spin(missing: int, period: int, state: Cells) -> None:
    """Skip whole passes of a loop that waits for the clock, except the last, which finds the time reached."""
    if missing > 0:
        wanted = -(-(tick(state) + missing) * state[CYCLES] // state[TICKS])
        state[CYCLE] += max(0, -((state[CYCLE] + 3 - wanted) // period) * period)


# -- transfers between registers, memories and ports; commands to the units


def move_wave(
    code: Cells, row: int, reg: Cells, state: Cells, wmem: Cells, ring: Cells, pushed: Cells, records: Cells
) -> int:
    """Execute all that moves six words at once (port, wave memory, wave registers); memory is read first."""
    size = len(wmem) // WAVE_WORDS
    place = (code[row + PLACE] if code[row + PLACE_LITERAL] else reg[code[row + PLACE]]) % size * WAVE_WORDS
    base = state[RECORDS] * RECORD + 3
    own = code[row + FROM_REGISTERS]
    for word in range(WAVE_WORDS):
        kept = reg[WAVE_REGISTERS + word] & narrow(word)
        moved = kept if own else wmem[place + word]
        records[base + word] = moved
        if code[row + TO_MEMORY]:
            wmem[place + word] = kept
        if code[row + TO_REGISTERS]:
            reg[WAVE_REGISTERS + word] = moved
    if not code[row + TO_PORT]:
        return GO
    scheduled = schedule(code, row, reg, state)
    if scheduled >> 47:
        return TOO_EARLY
    port = code[row + PORT]
    time = send(port, scheduled, state, ring, pushed)
    record(WAVE_OUT, port, time, records[base], state, records)
    return GO


def narrow(word: int) -> int:
    """Return a register as a wave keeps it: 24 bits of the envelope's address, 16 of the configuration."""
    if word == 2:
        return 0xFF_FFFF
    return 0xFFFF if word == 5 else MASK


def move_pin(
    code: Cells, row: int, reg: Cells, state: Cells, ring: Cells, pushed: Cells, records: Cells
) -> int:
    """Send a word to a data port, or a level to a trigger port (port numbers from 32 on)."""
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
    """Execute a command to time reference (unsigned numbers), flag, multiplier or divider."""
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
    """Return the value for a register: result, word of the data memory, or literal."""
    source = code[row + SOURCE]
    if source == FROM_DMEM:
        return dmem[data_address(code, row, reg) % len(dmem)]
    return code[row + LITERAL] if source == FROM_LITERAL else result


def data_address(code: Cells, row: int, reg: Cells) -> int:
    """Return an address of data memory: literal or register, plus another register."""
    place = code[row + PLACE] if code[row + PLACE_LITERAL] else reg[code[row + PLACE]]
    return place + reg[code[row + OFFSET]]


# -- instructions


def act(
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
    """Execute everything but branches."""
    action = code[row + ACTION]
    if action == WAVE:
        return move_wave(code, row, reg, state, wmem, ring, pushed, records)
    if action == PIN:
        return move_pin(code, row, reg, state, ring, pushed, records)
    if action == STORE:
        data = code[row + LITERAL] if code[row + DATA_LITERAL] else result
        dmem[data_address(code, row, reg) % len(dmem)] = data
    elif action == INPUT:
        state[INPUT_PORT] = code[row + PORT] & 15
        return READ
    elif REFERENCE <= action <= DIVIDE:
        control(code, row, reg, state)
    return GO


def leave_out(code: Cells, row: int, state: Cells) -> int:
    """Pass an instruction whose condition does not hold; a return goes back all the same."""
    cycle = state[CYCLE]
    if code[row + ACTION] == RETURN:
        stop = back(state)
    else:
        state[PC] += 1
        state[CYCLE] += 1
        stop = GO
    settle(code[row + LEAVES], cycle, state)
    return stop


def conclude(
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
    """Write register and flags; a refused instruction keeps the program counter, for the message."""
    if code[row + TARGET] >= 0 and stop in (GO, READ):
        state[LOADED] = code[row + TARGET]
        stop = put(code[row + TARGET], value, reg, state, records) or stop
    if code[row + UPDATES]:
        state[ZERO] = int(result == 0)
        state[SIGN] = result >> 31
    settle(code[row + SETS], cycle, state)
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
    """Carry one instruction out; returns GO or why not to go on."""
    row = state[PC] * WIDTH
    stall(code[row + NEEDS], state)
    stall_for_load(code, row, state)
    action = code[row + ACTION]
    left = operand(code[row + LEFT], reg, state)
    if code[row + LEFT] == 1 and state[LFSR_MODE] == 2:
        reg[1] = next_random(reg[1])
    if not holds(code[row + CONDITION], reg, state):
        return leave_out(code, row, state)
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
        stop = act(code, row, result, reg, state, dmem, wmem, ring, pushed, records)
        state[PC] += 1
        state[CYCLE] += 1
    return conclude(code, row, result, value, cycle, stop, reg, state, records)


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
    """Go on from where the state says until something is for the processor to handle; returns what."""
    stop = GO
    while stop == GO:
        if state[PC] >= state[LENGTH]:
            return OUTSIDE
        if state[STEPS] >= state[PAUSE_AT]:
            return PAUSE
        if state[RECORDS] + 2 > ROOM:
            return FULL
        state[STEPS] += 1
        stop = step(code, reg, state, dmem, wmem, ring, pushed, records)
    return stop
