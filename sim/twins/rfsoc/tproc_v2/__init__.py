"""The second timed processor of QICK firmware (`qick_processor`, tProc v2), executed instruction by instruction.

    processor = TprocV2.from_config(soccfg["tprocs"][0])
    processor.load_bin_program(program.binprog)
    run = processor.run(lambda port, half, tick: 0)

**Time.** All times of a `Run` are ticks of the timing clock (`f_time`) since the start. The core has a separate clock
(`f_core`), and is simulated cycle by cycle: one cycle for an instruction, three for a taken jump, 34 for a division, 6
for a product, and stalls of the pipeline. Constant latencies of ports and clock domain crossings (a few ticks) are
omitted. A word therefore takes effect at the tick that the program requests, or when the core sends it if that is
later. `s_usr_time` is the tick of the instruction that reads it. Words of a port leave at least three ticks apart, in
the order in which they were sent. A queue with `fifo_depth` words stalls the core until a word has left. Waits for the
clock (WAIT, `wait`, `wait_auto`) need no computing time, because all passes of their loop except the last are skipped.

**End.** The run ends when the program jumps to itself unconditionally, as `end()` does.

**Not simulated**, and refused by name, are NET, COM, PA and PB (network and peripherals), TIME rst and TIME updt, the
free-running random register, external and port flags, and reads of port or peripheral bits of `s_status`.

**Unlike the hardware**, a write to a read-only register (`s0`, `s3` to `s11`) has no effect. The pipeline of the
hardware forwards the value to the next two instructions, but no program of QICK uses this.
"""

from __future__ import annotations

from sim.twins.rfsoc.tproc_v2.processor import INSTRUCTION_LIMIT, TprocV2

__all__ = ["INSTRUCTION_LIMIT", "TprocV2"]
