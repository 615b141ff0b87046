"""A datapath with everything that registers are made of, and whose results do not depend on time."""

from fpga.count_action import (
    Action,
    ActionKind,
    Condition,
    Count,
    CountKind,
    Datapath,
    Module,
    Ref,
    Signal,
    SignalKind,
    Target,
)

_INPUTS = (
    Signal("x", SignalKind.STREAM, size=3, lanes=2, width=12, signed=True),
    Signal("w", SignalKind.STREAM, width=16),
    Signal("wide", SignalKind.STREAM, size=33, width=4),
    Signal("gate", SignalKind.FLAG),
    Signal("lamps", SignalKind.FLAG, size=40),
    Signal("step", SignalKind.NUMBER, size=2, width=8),
)


def _join() -> Module:
    """Return a module of three streams that leave together, and a pulse when they do."""
    samples = tuple(Ref("x", index=index, lane=lane) for index in range(3) for lane in range(2))
    return Module(
        "join",
        counts=(Count("all", CountKind.LEVEL, "n", tuple(Ref("x", index=i) for i in range(3)), width=4),),
        targets=(Target("n", 3, 4),),
        actions=(Action(ActionKind.STREAM, "all", "beat", samples, width=12, signed=True),),
    )


def _adder() -> Module:
    """Return a module of sums of a stream, while the gate is open."""
    gate = (Condition(Ref("gate")),)
    return Module(
        "adder",
        counts=(Count("beats", CountKind.ACCUMULATE, "per_sum", (Ref("w"),), gate=gate),),
        targets=(Target("per_sum", 2),),
        actions=(
            Action(ActionKind.EMIT, "beats", "total", (Ref("w"),), width=32),
            Action(ActionKind.PULSE, "beats", "went"),
        ),
    )


def _wall() -> Module:
    """Return a module of more streams than bits in a word; they leave when all have samples and lamp 39 is on."""
    return Module(
        "wall",
        counts=(
            Count(
                "all",
                CountKind.LEVEL,
                "n",
                tuple(Ref("wide", index=index) for index in range(33)),
                gate=(Condition(Ref("lamps", index=39)),),
            ),
        ),
        targets=(Target("n", 33),),
        actions=(
            Action(
                ActionKind.STREAM, "all", "bricks", tuple(Ref("wide", index=i) for i in range(33)), width=4
            ),
        ),
    )


def _book() -> Module:
    """Return a module that counts the sums of the adder: a flag, a number, and a count that jumps over its target."""
    went = Condition(Ref("went", "adder"))
    return Module(
        "book",
        counts=(
            Count("sums", CountKind.ACCUMULATE, "many", (Ref("went", "adder"),)),
            Count("jumps", CountKind.ACCUMULATE, "far", (Ref("step", index=1),), gate=(went,)),
            Count("small", CountKind.ACCUMULATE, "never", (Ref("step", index=1),), gate=(went,), width=4),
        ),
        targets=(Target("many", 2), Target("far", 5), Target("never", 0, 4)),
        actions=(
            Action(ActionKind.SET, "sums", "seen"),
            Action(ActionKind.ADVANCE, "sums", "turn", width=3, modulo=5),
        ),
    )


def demo() -> Datapath:
    return Datapath("demo", _INPUTS, (_join(), _adder(), _wall(), _book()))
