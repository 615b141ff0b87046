"""The timed processor of version 1 (`axis_tproc64x32_x8`), which turns a program into words on channels with times.

The behaviour is that of the published firmware, `firmware/ip/axis_tproc64x32_x8_v1/src` of the QICK repository;
names in brackets are its files.

**Registers and memories.** 8 pages of 32 registers of 32 bits; all registers of an instruction are on the page that it
selects; register 0 of each page always reads as zero [`regfile_8p.vhd`]. Registers, stack and data memory are not
cleared when a program starts: they keep the contents after the last run. Addresses of data memory are modulo its size,
a power of two [`tproc64x32_x8.v`]. The stack has 255 words [`stack.vhd`].

**Numbers.** Immediates have 31 bits and are sign-extended to 32. `+` and `-` wrap at 32 bits; `*` multiplies the lower
16 bits of both operands, signed [`math.vhd`]. Shifts use the lowest 5 bits of the right operand, `>>` fills with zeros;
`~` inverts the right operand [`bitw.vhd`]. Both units use the same operation codes, so that `math` with a bit-wise
code is a bit-wise operation; the result of an invalid code is zero [`alu.v`]. Comparisons are signed; an invalid code
is never true [`cond.vhd`]. `loopnz` tests the register first: a counter of n - 1 makes n passes. `read` returns the
upper half of an input for operation 1010, otherwise the lower; inputs 4 to 7 are 0.

**Time.** Times have 48 bits. The time of an instruction is added to the offset t_off, 0 at the start, as an *unsigned*
32-bit number: `seti` at -1 is due after 2**32 - 1 ticks. `sync` adds its operand to t_off in the same way.

**Duration of instructions**, from decoding to the decoding of the next, in ticks [states of `ctrl.sv`]; tick 0 is the
fetch of the first instruction, which is decoded at tick 1:

    pushi regwi memwi memw read     2          math mathi bitw bitwi     5
    sync synci                      3          loopnz                    3, with a jump 6
    popi memri memr                 4          condj                     4, with a jump 5
    set seti setb setbi             4, longer while the channel's queue is full
    wait waiti                      7, longer until the time has come

**Channels.** Words with times pass through a queue for each channel [`fifo.vhd`, `timed_ictrl.vhd`], with 15 words
besides the word that waits for its time. A word leaves the queue two ticks after it entered (which is two ticks after
the decoding of its instruction), or three ticks after the previous word took effect. It then takes effect when it is
due or, if that tick has passed, at once: late, in order, and without an error. `wait` also passes through the queue of
its channel, and therefore ends only when all earlier words of the channel have taken effect.

The `time` of a write, pin or wait is the tick at which it takes effect. A `count` is in memory from its time on. The
`end` of a run is the tick at which the processor reaches `end`; words may still wait in the queues then.

**Simplifications.** The word itself is on the channel one tick after its time, always; this tick is part of the fixed
delays of the path. Receivers are always ready, so that `setb` and `setbi` do not block and equal `set` and `seti`.
Access to data memory from outside does not delay the program. Words that wait in a queue at `end` all take effect at
their times, although the start of the next round would reset the clock. An unknown opcode and a full or empty stack,
which stop the board without an error, raise `ProgramError`; so does a program that runs past its last word, where the
board continues with the words of an earlier program. The delay from the start signal to tick 0 is omitted.
"""

from sim.twins.rfsoc.tproc_v1.tproc import EVENT_LIMIT, TprocV1

__all__ = ["EVENT_LIMIT", "TprocV1"]
