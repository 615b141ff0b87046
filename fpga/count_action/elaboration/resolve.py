"""From elaborated modules to the one representation: every name becomes a reference to what it means."""

from __future__ import annotations

from dataclasses import replace

from fpga.count_action import arbitration
from fpga.count_action.actions import VERBS
from fpga.count_action.diagnostics import Refused, Report, did_you_mean, quoted
from fpga.count_action.elaboration.beats import Beats, Context
from fpga.count_action.elaboration.choices import end_of, streams_of
from fpga.count_action.elaboration.flat import (
    FlatAction,
    FlatCount,
    FlatFormula,
    FlatInput,
    FlatModule,
    FlatOperand,
    FlatReference,
    Output,
)
from fpga.count_action.elaboration.names import Names
from fpga.count_action.elaboration.targets import count_of, resolved_target, target_of
from fpga.count_action.model import (
    VALUE,
    Action,
    ActionKind,
    Claim,
    Condition,
    Count,
    Datapath,
    Module,
    Operand,
    Operation,
    Ref,
)


def resolve(name: str, modules: list[FlatModule], inputs: list[FlatInput], report: Report) -> Datapath:
    """Return the datapath of these modules. Raises `CountActionError` with everything that does not resolve."""
    names = Names(modules, inputs, report)
    names.settle()
    beats = Beats(names, report)
    beats.check_wires()
    resolver = _Resolver(names, beats, report)
    resolved = tuple(resolver.module(module) for module in modules)
    report.settle()
    return Datapath(name, names.externals.signals(), resolved)


class _Resolver:
    """Resolves the parts of modules. Errors go to the report, several at a time."""

    def __init__(self, names: Names, beats: Beats, report: Report) -> None:
        self._names, self._beats, self._report = names, beats, report

    def module(self, module: FlatModule) -> Module:
        counts: list[Count] = []
        actions: list[Action] = []
        values: list[Operand] = []
        for place, count in enumerate(module.counts):
            with self._report.part():
                counts.append(self._count(module, count, place, values))
        known = {count.name: count for count in counts}
        for action in module.actions:
            with self._report.part():
                actions.append(self._action(module, action, known, values))
        targets = tuple(resolved_target(target, module) for target in module.targets)
        claims: list[Claim] = []
        for claim in module.claims:
            with self._report.part():
                (holds,) = self._operands(module, claim.holds)
                claims.append(Claim(claim.kind, claim.name, holds, claim.at))
        made = tuple(values)
        return Module(module.name, tuple(counts), targets, tuple(actions), module.at, made, tuple(claims))

    def _count(self, module: FlatModule, count: FlatCount, place: int, values: list[Operand]) -> Count:
        terms, taken = (
            tuple(ref for reference in part for ref in self._beats.refs(module, reference, "sum"))
            for part in (count.terms, count.taken)
        )
        aim = None if count.aim is None else self._refs(module, count.aim, "condition", values)[0]
        bound = None if count.bound is None else self._refs(module, count.bound, "condition", values)[0]
        gate = [
            Condition(ref, negated)
            for operand, negated in count.gate
            for ref in self._refs(module, operand, "condition", values)
        ]
        made = Count(
            name=count.name,
            kind=count.kind,
            target=target_of(module, count, place),
            terms=terms,
            taken=taken,
            bound=bound,
            constant=count.constant,
            gate=tuple(gate),
            width=count.width,
            at=count.at,
            aim=aim,
            order=count.order,
            whole=count.whole,
        )
        if not made.order:
            return made
        picks = (self._kept_value(module, pick, values) for pick in arbitration.picks(made, module.name))
        return replace(made, picks=tuple(picks))

    def _kept_value(self, module: FlatModule, value: Operand, values: list[Operand]) -> Ref:
        values.append(value)
        return Ref(f"{VALUE}{len(values) - 1}", module.name)

    def _refs(
        self, module: FlatModule, operand: FlatOperand, context: Context, values: list[Operand]
    ) -> list[Ref]:
        """Return the references that a condition or a sample comes to; a formula becomes a value of the module."""
        if isinstance(operand, FlatReference) and self._names.stored(module, operand, inner=False) is None:
            return list(self._beats.refs(module, operand, context))
        (value,) = self._operands(module, operand)
        values.append(value)
        at = None if isinstance(operand, int) else operand.at
        return [Ref(f"{VALUE}{len(values) - 1}", module.name, at=at)]

    def _operands(self, module: FlatModule, operand: FlatOperand, *, several: bool = False) -> list[Operand]:
        """Return what an operand stands for: one thing, or (of `max` and `min`) all lanes of a beat."""
        if isinstance(operand, int):
            return [operand]
        if isinstance(operand, FlatFormula):
            many = operand.operator in {"max", "min"}
            parts = [part for each in operand.operands for part in self._operands(module, each, several=many)]
            return [Operation(operand.operator, tuple(parts))]
        if stored := self._names.stored(module, operand, inner=True):
            return [Operation(stored.operator, (Ref(stored.name, stored.module, at=operand.at),))]
        if operand.suffix == "valid":
            refs = self._beats.refs(module, operand, "condition")
            return [Operation("valid", (ref,)) for ref in refs]
        if lanes := self._names.kept_lanes(module, operand):
            return [self._kept(module, operand, lanes)]
        found = list(self._beats.refs(module, operand, "sample"))
        if len(found) > 1 and not several:
            message = f"{quoted(f'{operand}.data')} has {len(found)} lanes; which one is meant?"
            raise Refused(operand.at, message, f"Write {operand}.data[1], or a range.")
        return list(found)

    def _kept(self, module: FlatModule, reference: FlatReference, lanes: int) -> Operand:
        """Return the kept lanes of a beat as a number, the first lane lowest (R18)."""
        made: Operand = 0
        for lane in range(lanes):
            (ref,) = self._beats.refs(module, replace(reference, index=lane + 1), "condition")
            bit = Operation("if", (ref, 1 << lane, 0))
            made = Operation("+", (made, bit)) if lane else bit
        return made

    def _action(
        self, module: FlatModule, action: FlatAction, counts: dict[str, Count], values: list[Operand]
    ) -> Action:
        on = count_of(module, action)
        if action.cleared is not None:
            return self._clear(module, action.cleared, on, action)
        refs = [ref for operand in action.samples for ref in self._refs(module, operand, "sample", values)]
        beat = self._beats.beat_of(module, action)
        if not action.samples and on in counts:
            chosen = self._chosen(module, action, counts[on], beat.lanes)
            refs = [self._kept_value(module, each, values) for each in chosen]
        return Action(
            kind=VERBS[action.verb].kind,
            on=on,
            output=action.name,
            refs=tuple(refs),
            width=beat.width,
            signed=beat.signed,
            shift=action.shift,
            modulo=action.modulo,
            reduction=action.reduction,
            with_index=action.with_index,
            part_of=action.part_of,
            merges=action.verb == "merge",
            wins=action.wins,
            at=action.at,
        )

    def _chosen(self, module: FlatModule, action: FlatAction, count: Count, lanes: int) -> list[Operand]:
        """Return what a choice sends or keeps: samples, the ends of a packet, or whose turn it is (R19)."""
        if action.verb == "merge":
            return arbitration.chosen_samples(count, module.name, lanes)
        if action.verb != "store":
            return []
        end = action.name.removeprefix(f"{action.part_of}_")
        kept = arbitration.stored(count, module.name) if action.part_of == count.name else {}
        if end in kept:  # a stream may have the name of its count: `last` and `keep` are of the stream
            return [kept[end]]
        streams = (end_of(each, end) for each in streams_of(module, action))
        options = [part for each in streams for part in self._operands(module, each)]
        return [arbitration.select(count, module.name, options)]

    def _clear(self, module: FlatModule, reference: FlatReference, on: str, action: FlatAction) -> Action:
        if reference.suffix:
            raise Refused(
                reference.at,
                f"{quoted(str(reference))} is a stream and cannot be cleared",
                "Clear a count or a flag.",
            )
        driver = self._names.drivers.get(Output(module.name, reference.label))
        if reference.module is None and driver is not None and driver.verb == "set":
            return Action(ActionKind.CLEAR_FLAG, on, reference.label, at=action.at, wins=action.wins)
        if action.wins:
            raise Refused(
                action.at, "only the clear of a flag can win: nothing sets a count", "Leave `wins` away."
            )
        owner = module if reference.module is None else self._names.modules.get(reference.module)
        if owner is None:
            hint = did_you_mean(str(reference.module), self._names.modules)
            raise Refused(reference.at, f"there is no module {quoted(str(reference.module))}", hint)
        if reference.label in self._names.counts[owner.name]:
            return Action(ActionKind.CLEAR_COUNT, on, clears=(owner.name, reference.label), at=action.at)
        flags = [each.name for each in module.actions if each.verb == "set"] if owner is module else []
        hint = did_you_mean(reference.label, [*(count.name for count in owner.counts), *flags])
        if owner is not module and Output(owner.name, reference.label) in self._names.drivers:
            hint = f"Pulse, count the pulse in {owner.name}, and let that clear {reference.label}."
        message = f"{quoted(str(reference))} is neither a count nor a flag that {quoted(module.name)} sets"
        raise Refused(reference.at, message, hint)
