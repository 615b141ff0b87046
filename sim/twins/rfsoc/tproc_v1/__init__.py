"""The timed processor of version 1 (`axis_tproc64x32_x8`). A program sends words to channels at given times.

It behaves like the public firmware, `firmware/ip/axis_tproc64x32_x8_v1/src` of the QICK repository. Names in brackets
are files of the firmware.

**Registers and memories.** There are 8 pages of 32 registers of 32 bits. An instruction selects a page for all its
registers. Register 0 of each page always reads as zero [`regfile_8p.vhd`]. The start of a program clears neither
registers nor stack nor data memory. Addresses of data memory are modulo its size, a power of two [`tproc64x32_x8.v`].
The stack has 255 words [`stack.vhd`].

**Numbers.** Immediates have 31 bits and are sign-extended to 32. `+` and `-` wrap at 32 bits. `*` is the signed product
of the lower 16 bits of both operands [`math.vhd`]. Shifts use the lowest 5 bits of the right operand, and `>>` fills
with zeros. `~` inverts the right operand [`bitw.vhd`]. Both units use the same operation codes, so `math` with a
bit-wise code is a bit-wise operation. The result of an invalid code is zero [`alu.v`]. Comparisons are signed, and an
invalid code is never true [`cond.vhd`]. `loopnz` tests the register first, so a counter of n - 1 makes n passes. `read`
returns the upper half of an input for operation 1010, otherwise the lower half. Inputs 4 to 7 are 0.

**Time.** Times have 48 bits. The time of an instruction is an *unsigned* 32-bit number, which is added to the offset
t_off. For example, `seti` at -1 is due after 2**32 - 1 ticks. `sync` adds its operand to t_off in the same way. At the
start, t_off is 0.

**Duration of instructions**, from decoding to the decoding of the next, in ticks [states of `ctrl.sv`]. Tick 0 is the
fetch of the first instruction, which is decoded at tick 1:

    pushi regwi memwi memw read     2          math mathi bitw bitwi     5
    sync synci                      3          loopnz                    3, with a jump 6
    popi memri memr                 4          condj                     4, with a jump 5
    set seti setb setbi             4, longer while the channel's queue is full
    wait waiti                      7, longer until the time has come

**Channels.** Each channel has a queue for words with times [`fifo.vhd`, `timed_ictrl.vhd`]. It holds 15 words besides
the word that waits for its time. A word enters the queue two ticks after the decoding of its instruction. It leaves the
queue two ticks later, or three ticks after the previous word took effect if that is later. It then takes effect when it
is due. If that tick has passed, the word takes effect at once: late, in order, and without an error. `wait` also passes
through the queue of its channel, and therefore ends only when all earlier words of the channel have taken effect.

The `time` of a write, pin or wait is the tick at which it takes effect. A count is in memory from its time on.
The `end_tick` of a run is the tick at which the processor reaches `end`. Words may still wait in the queues then.

**Simplifications.**

- The word itself is always on the channel one tick after its time. This tick is part of the fixed delays of the path.
- Receivers are always ready, so `setb` and `setbi` do not block, and equal `set` and `seti`.
- Access to data memory by the host does not delay the program.
- Words that wait in a queue at `end` all take effect at their times, although the next start would reset the clock.
- An unknown opcode, and a full or empty stack, raise `ProgramError`. The board stops without an error.
- A program that runs past its last word raises `ProgramError`. The board executes words of an earlier program.
- The delay from the start signal to tick 0 is omitted.
"""

from sim.twins.rfsoc.tproc_v1.tproc import EVENT_LIMIT, TprocV1

__all__ = ["EVENT_LIMIT", "TprocV1"]
