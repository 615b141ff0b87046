"""Syntax nodes of actions: one method for each rule of the grammar."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fpga.count_action.language.formulas import FormulaBuilder
from fpga.count_action.language.operands import Index, Number, Operand, Ranged, Reference
from fpga.count_action.language.syntax import ActionText, Label, VerbText
from fpga.count_action.model import Location


class ActionBuilder(FormulaBuilder):
    """Makes the nodes of actions and their verbs."""

    def _action(self, at: Location, each: Index | None, on: Label | None, does: VerbText) -> ActionText:
        return ActionText(each, on, does, at)

    def _on(self, at: Location, label: Label) -> Label:
        return label

    def _stream(self, at: Location, *parts: Any) -> VerbText:
        *samples, width, sign, ends, name = parts
        return VerbText(
            "stream", at, name, tuple(samples), width=width, sign=sign and sign.signed, ends=ends or ()
        )

    def _merge(
        self, at: Location, ends: tuple[str, ...] | None, width: Number | None, sign: Any, name: Label | None
    ) -> VerbText:
        return VerbText("merge", at, name, width=width, sign=sign and sign.signed, merged_ends=ends or ())

    def _ends(self, at: Location, *ends: Operand | None) -> tuple[Operand, ...]:
        return tuple(each for each in ends if each is not None)

    def _store(self, at: Location, value: Operand, width: Number | None, name: Label) -> VerbText:
        return VerbText("store", at, name, (value,), width=width)

    def _emit(self, at: Location, *parts: Any) -> VerbText:
        *samples, shift, width, sign, name = parts
        return VerbText("emit", at, name, tuple(samples), shift=shift, width=width, sign=sign and sign.signed)

    def _emit_extreme(self, at: Location, reduction: Any, *parts: Any) -> VerbText:
        *samples, index, shift, width, sign, name = parts
        return VerbText(
            "emit", at, name, tuple(samples), reduction, index is not None, shift, width, sign and sign.signed
        )

    def _largest(self, at: Location) -> str:
        return "max"

    def _smallest(self, at: Location) -> str:
        return "min"

    def _with_index(self, at: Location) -> Location:
        return at

    def _addend(self, at: Location, value: Operand) -> Operand:
        return value

    def _added_sample(self, at: Location, value: Operand) -> Operand:
        return value

    def _taken_sample(self, at: Location, value: Operand) -> Operand:
        if isinstance(value, Ranged):
            return replace(value, value=self._opposite(at, value.value))
        return self._opposite(at, value)

    def _shift(self, at: Location, places: Number) -> Number:
        return places

    def _as_name(self, at: Location, name: Label) -> Label:
        return name

    def _pulse(self, at: Location, name: Label) -> VerbText:
        return VerbText("pulse", at, name)

    def _set(self, at: Location, name: Label, wins: Location | None) -> VerbText:
        return VerbText("set", at, name, wins=wins is not None)

    def _clear(self, at: Location, cleared: Reference, wins: Location | None) -> VerbText:
        return VerbText("clear", at, cleared=cleared, wins=wins is not None)

    def _wins(self, at: Location) -> Location:
        return at

    def _advance(self, at: Location, name: Label, modulo: Number, width: Number | None) -> VerbText:
        return VerbText("advance", at, name, modulo=modulo, width=width)

    def _each(self, at: Location, index: Index) -> Index:
        return index
