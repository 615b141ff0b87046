"""Resolution of targets and counts: the target of a count, the count of an action, table entries, target widths."""

from __future__ import annotations

from collections.abc import Iterator

from fpga.count_action.defaults import COUNT_WIDTH
from fpga.count_action.diagnostics import SourceError, quote, suggest_name
from fpga.count_action.elaboration.arithmetic import Values, evaluate, evaluate_range
from fpga.count_action.elaboration.flat import FlatAction, FlatCount, FlatModule, FlatTarget
from fpga.count_action.language.syntax import ModuleText, TableText
from fpga.count_action.model import Target


def find_target(module: FlatModule, count: FlatCount, index: int) -> str:
    """Return the name of the target of a count. Raise `SourceError` if there is none, or if it is ambiguous."""
    if count.target is not None:
        target_names = [target.name for target in module.targets]
        if count.target not in target_names:
            message = f"{quote(module.name)} has no target {quote(count.target)}"
            hint = suggest_name(count.target, target_names)
            if count.target == "never":
                hint = "Declare it: `targets: { none: never }`, and write `to none`."
            raise SourceError(count.target_location, message, hint)
        return count.target
    names = [target.name for target in module.targets if not target.is_in_table]
    if not names:
        message = f"{quote(module.name)} has no target for count {quote(count.name)}"
        raise SourceError(
            count.location,
            message,
            "Add `targets: { 4 }`, or `targets: { never }` for a count that is only read.",
        )
    if len(names) == 1:
        return names[0]
    if len(names) != len(module.counts):
        message = f"{quote(module.name)} has {len(module.counts)} counts and {len(names)} targets"
        raise SourceError(
            count.location,
            message,
            "Write a single target, a target for each count, or `to TARGET` in the count.",
        )
    return names[index]


def find_count(module: FlatModule, action: FlatAction) -> str:
    """Return the name of the count of an action. Raise `SourceError` if there is none, or if it is ambiguous."""
    names = [count.name for count in module.counts]
    if action.count_name == "":
        return ""
    if action.count_name is not None:
        if action.count_name not in names:
            message = f"{quote(module.name)} has no count {quote(action.count_name)}"
            raise SourceError(action.count_location, message, suggest_name(action.count_name, names))
        return action.count_name
    if len(names) == 1:
        return names[0]
    if not names:
        raise SourceError(
            action.location, f"{quote(module.name)} has no count for this action", "Add `counts: {...}`."
        )
    # Actions that store `last` and `keep` share the count of the action that sends the beat.
    actions = [
        candidate for candidate in module.actions if not candidate.part_of and candidate.count_name != ""
    ]
    if len(names) != len(actions):
        message = f"this action names no count, and there are {len(names)} counts and {len(actions)} actions"
        raise SourceError(
            action.location, message, f"Write `on COUNT:` before it, for example `on {names[0]}:`."
        )
    matches = (
        candidate.name == action.part_of if action.part_of else candidate is action for candidate in actions
    )
    return names[next(index for index, is_match in enumerate(matches) if is_match)]


def find_table_indices(module_text: ModuleText, values: Values) -> dict[str, range]:
    """Return the indices of every table, by name."""
    return {table.name: evaluate_range(table.index_range, values) for table in module_text.tables}


def make_entry_targets(table_text: TableText, values: Values) -> Iterator[FlatTarget]:
    """Yield the entries of a table as targets; a single value is used for all entries."""
    span = evaluate_range(table_text.index_range, values)
    if len(table_text.entries) not in {1, len(span)}:
        message = (
            f"table {quote(table_text.name)} has {len(span)} entries and {len(table_text.entries)} values"
        )
        raise SourceError(table_text.location, message, "Write one value per entry, or one for all.")
    width = None if table_text.width is None else evaluate(table_text.width, values)
    for position, index in enumerate(span):
        entry = table_text.entries[position % len(table_text.entries)]
        reset_value = 0 if entry is None else evaluate(entry, values)
        yield FlatTarget(
            f"{table_text.name}_{index}", reset_value, width, table_text.location, is_in_table=True
        )


def find_target_width(target: FlatTarget, module: FlatModule) -> int:
    """Return the width of a target in bits: as declared, otherwise the width of its widest count, or the default."""
    if target.width is not None:
        return target.width
    widths = []
    for index, count in enumerate(module.counts):
        try:
            name = find_target(module, count, index)
        except SourceError:
            continue
        if name == target.name:
            widths.append(count.width)
    return max(widths, default=COUNT_WIDTH)


def resolve_target(target: FlatTarget, module: FlatModule) -> Target:
    """Return `target` as the datapath model stores it, with its width resolved."""
    width = find_target_width(target, module)
    return Target(target.name, target.reset_value, width, target.location, target.at_least, target.carry)
