"""The second timed processor of QICK firmware (`qick_processor`, tProc v2), carried out instruction by instruction.

    processor = TprocV2.from_config(soccfg["tprocs"][0])
    processor.load_bin_program(program.binprog)
    run = processor.run(lambda port, half, tick: 0)

**Time.** All times of a `Run` are ticks of the timing clock (`f_time`) since the start. The core has a clock of its
own (`f_core`), and is followed cycle by cycle: one for an instruction, three for a taken jump, the stalls of the
pipeline, 34 for a division, 6 for a product. Left out are the constant latencies from the core to its ports and those
of the crossings between the two clocks (some ticks): a word takes effect at the tick that the program asked for, or,
when the core is late, at the tick at which the core sends it; `s_usr_time` shows the tick of the instruction that reads
it. Words of one port leave three ticks apart or more, in the order in which they were sent. A queue with `fifo_depth`
words halts the core until one of them has left. Waits for the clock (WAIT, `wait`, `wait_auto`) cost no computing
time: the passes of their loop are skipped, all but the last.

**End.** The run ends where the program jumps to itself without condition, as `end()` does.

**Not simulated**, and refused by name: NET, COM, PA and PB (network and peripherals), TIME rst and TIME updt, the
free-running random register, external and port flags, and reads of `s_status` that ask for ports or peripherals.

**Unlike the hardware**, what is written to a register that cannot be written (`s0`, `s3` to `s11`) is gone at once; the
pipeline forwards it to the two instructions behind, which no program of QICK's makes use of.
"""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.processor import LIMIT, TprocV2

__all__ = ["LIMIT", "TprocV2"]
