"""The timed processor of version 1 (`axis_tproc64x32_x8`): a program in, words on channels at their times out.

The facts are those of the published firmware, `firmware/ip/axis_tproc64x32_x8_v1/src` of the QICK repository;
names in brackets are its files.

**Registers and memories.** 8 pages of 32 registers of 32 bits; all registers of an instruction are on the page it
names; register 0 of each page reads as zero whatever was written [`regfile_8p.vhd`]. Nothing clears registers,
stack or data memory when a program starts: they hold what the last run left. Addresses of data memory count modulo
its size, a power of two [`tproc64x32_x8.v`]. The stack takes 255 words [`stack.vhd`].

**Numbers.** Immediates have 31 bits and are extended with their sign to 32. `+` and `-` wrap at 32 bits; `*`
multiplies the lower 16 bits of both sides, with sign [`math.vhd`]. Shifts go by the lowest 5 bits of the right
side, `>>` fills with zeros; `~` inverts the right side [`bitw.vhd`]. Both units hang on one operation code, so
that `math` with a bit-wise code is a bit-wise operation; a code that is none gives zero [`alu.v`]. Comparisons are
with sign; a code that is none is never true [`cond.vhd`]. `loopnz` looks at the register first: a counter of n - 1
makes n passes. `read` takes the upper half of an input with operation 1010, else the lower; inputs 4 to 7 give 0.

**Time.** Times have 48 bits. An instruction's time is added to the offset t_off, 0 at the start, as a 32-bit number
*without* sign: `seti` at -1 is due after 2**32 - 1 ticks. `sync` adds its operand to t_off in the same way.

**What an instruction takes**, from its decoding to the next one's, in ticks [states of `ctrl.sv`]; tick 0 is the
fetch of the first instruction, which is decoded at tick 1:

    pushi regwi memwi memw read     2          math mathi bitw bitwi     5
    sync synci                      3          loopnz                    3, with a jump 6
    popi memri memr                 4          condj                     4, with a jump 5
    set seti setb setbi             4, longer while the channel's queue is full
    wait waiti                      7, longer until the time has come

**Channels.** Words with times go through a queue per channel [`fifo.vhd`, `timed_ictrl.vhd`], of 15 words next to the
one that waits for its time. A word comes out of the queue two ticks after it was put there (which is two ticks
after the decoding of its instruction), or three after the one before it took effect; then it takes effect when it
is due or, if that tick has passed, at once: late, in order, and without a report. `wait` goes through the
queue of its channel, too, hence ends only when all that was sent there before has taken effect.

The `time` of a write, pin or wait is the tick at which the clock lets it pass. A `count` is in memory from its time
on; a run's `end` is the tick at which the processor reaches `end`, where words may still wait in the queues.

**What is simplified.** The word itself lies on the channel one tick after its time, always; this tick belongs to the
fixed delays of the path. Receivers are always ready, so that `setb` and `setbi` do not block and are `set` and
`seti`. Access from outside to data memory costs the program nothing. Words that wait in a queue at `end` all take
effect at their times, although a start of the next round would set the clock back. An unknown opcode and a stack that
is full or empty, which stop the board without a word, raise `ProgramError`, and so does a program that runs past
its last word, where the board goes on with what an earlier program left there. The delay from the start signal
to tick 0 is left out.
"""

from sim.twins.rfsoc.tproc_v1.tproc import EVENT_LIMIT, TprocV1

__all__ = ["EVENT_LIMIT", "TprocV1"]
