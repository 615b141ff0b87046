"""Plan the steps from the current configuration of a switch to a target.

The functions are pure, and the same for every vendor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ocs_drivers.errors import (
    PortBusy,
    PortDisabled,
    PortError,
    PortFailed,
    PortLocked,
    UnknownPort,
    Unsupported,
    WrongSide,
)
from ocs_drivers.model import Capabilities, CrossConnects, PortInfo, PortState, Side, Snapshot, Step

Pair = tuple[int, int]


def check_inputs(ports: Iterable[int], capabilities: Capabilities, *, device: str = "") -> None:
    """Raise `UnknownPort` or `WrongSide` unless all ports are inputs, 1..inputs."""
    ports = tuple(ports)
    check_ports_exist(ports, capabilities, device=device)
    wrong_ports = [port for port in ports if port > capabilities.inputs]
    if wrong_ports:
        raise WrongSide(
            "outputs were named where inputs belong",
            device=device,
            ports=wrong_ports,
            hint=f"Inputs are {_format_input_range(capabilities)}; a pair is INPUT:OUTPUT.",
        )


def check_outputs(ports: Iterable[int], capabilities: Capabilities, *, device: str = "") -> None:
    """Raise `UnknownPort` or `WrongSide` unless all ports are outputs, inputs+1..inputs+outputs."""
    ports = tuple(ports)
    check_ports_exist(ports, capabilities, device=device)
    wrong_ports = [port for port in ports if port <= capabilities.inputs]
    if wrong_ports:
        raise WrongSide(
            "inputs were named where outputs belong",
            device=device,
            ports=wrong_ports,
            hint=f"Outputs are {_format_output_range(capabilities)}; a pair is INPUT:OUTPUT.",
        )


def check_ports_exist(ports: Iterable[int], capabilities: Capabilities, *, device: str = "") -> None:
    """Raise `UnknownPort` unless the device has all these ports."""
    highest = capabilities.inputs + capabilities.outputs
    unknown_ports = [port for port in ports if not 1 <= port <= highest]
    if unknown_ports:
        raise UnknownPort(
            "the switch has no such port",
            device=device,
            ports=unknown_ports,
            hint=f"Inputs are {_format_input_range(capabilities)}, outputs {_format_output_range(capabilities)}.",
        )


def check_target(
    target: Mapping[int, int],
    scope: Collection[int] | None,
    capabilities: Capabilities,
    *,
    device: str = "",
) -> None:
    """Check that the device can hold the target, and that all inputs of the target are in the scope.

    Raise `UnknownPort`, `WrongSide` or `PortError` otherwise.
    """
    check_inputs(target.keys(), capabilities, device=device)
    check_outputs(target.values(), capabilities, device=device)
    _check_banks(target, capabilities, device)
    if scope is None:
        return
    check_inputs(scope, capabilities, device=device)
    ports_outside_scope = [port for port in target if port not in scope]
    if ports_outside_scope:
        raise PortError(
            "the target contains inputs outside its scope",
            device=device,
            ports=ports_outside_scope,
            hint="Widen the scope or leave these inputs out of the target.",
        )


def _check_banks(target: Mapping[int, int], capabilities: Capabilities, device: str) -> None:
    outputs_per_bank = capabilities.bank_outputs
    if outputs_per_bank is None:
        return
    for source, output in target.items():
        first_output = capabilities.inputs + (source - 1) * outputs_per_bank + 1
        if not first_output <= output < first_output + outputs_per_bank:
            raise PortError(
                f"input {source} cannot reach output {output}",
                device=device,
                ports=(source, output),
                hint=f"Its bank has outputs {first_output}..{first_output + outputs_per_bank - 1}.",
            )


def make_plain_ports(capabilities: Capabilities) -> dict[int, PortInfo]:
    """Return all ports as enabled, named by their number on their side.

    >>> [(port.number, port.side.value, port.name) for port in make_plain_ports(Capabilities(1, 2)).values()]
    [(1, 'in', '1'), (2, 'out', '1'), (3, 'out', '2')]
    """
    inputs, outputs = range(1, capabilities.inputs + 1), range(1, capabilities.outputs + 1)
    port_numbers = [(Side.IN, n) for n in inputs] + [(Side.OUT, n) for n in outputs]
    return {
        number: PortInfo(number, side, PortState.ENABLED, name=str(n))
        for number, (side, n) in enumerate(port_numbers, 1)
    }


def plan(
    target: CrossConnects,
    snapshot: Snapshot | CrossConnects,
    *,
    capabilities: Capabilities,
    scope: Collection[int] | None = None,
    device: str = "",
) -> tuple[Step, ...]:
    """Return the steps from `snapshot` to `target`, each atomic on the device; none if both agree in the scope.

    If the scope is the whole switch and the device supports it, the only step is a `replace`. Otherwise the inputs in
    `scope` get `remove` steps, then `add` steps (break before make): one step of each kind if a command
    takes a list of pairs, else one step per pair or tied group.

    Raises the errors of `check_target`, and:

    - `PortBusy` if a circuit outside the scope uses an output of the target or is tied to a circuit to remove;
    - `PortLocked`, `PortDisabled` or `PortFailed` for a port that was read as unfit;
    - `Unsupported` if an input of a switch without disconnects would be left unconnected.
    """
    check_target(target, scope, capabilities, device=device)
    if isinstance(snapshot, CrossConnects):
        snapshot = Snapshot(snapshot, 0.0)
    current_connections = snapshot.connections
    if scope is None or len(set(scope)) == capabilities.inputs:
        scope = range(1, capabilities.inputs + 1)
        if capabilities.atomic_whole:
            _check_port_states(
                snapshot,
                target.pairs - current_connections.pairs,
                current_connections.pairs - target.pairs,
                device,
            )
            return _plan_replacement(target, current_connections, capabilities)
    removed_pairs, added_pairs = _find_difference(target, snapshot, frozenset(scope), device)
    if not capabilities.disconnects:
        removed_pairs = _omit_disconnects(removed_pairs, added_pairs, device)
    _check_port_states(snapshot, added_pairs, removed_pairs, device)
    _check_outputs_free(
        added_pairs,
        CrossConnects(
            current_connections.pairs - removed_pairs - _find_moved_pairs(current_connections, added_pairs)
        ),
        device,
    )
    return _plan_break_then_make(removed_pairs, added_pairs, snapshot, capabilities)


def _plan_replacement(
    target: CrossConnects, current_connections: CrossConnects, capabilities: Capabilities
) -> tuple[Step, ...]:
    if target == current_connections:
        return ()
    return (Step("replace", target, current_connections, target, capabilities.switch_time_s[0]),)


def _find_difference(
    target: CrossConnects, snapshot: Snapshot, scope: frozenset[int], device: str
) -> tuple[frozenset[Pair], frozenset[Pair]]:
    """Return the pairs to remove and to add within the scope; pairs tied to a removed pair are removed too."""
    current = snapshot.connections
    removed_pairs = {(i, o) for i, o in current.items() if i in scope and target.get(i) != o}
    tied_pairs = {
        pair for group in snapshot.tied if group & removed_pairs for pair in group & current.pairs
    } - removed_pairs
    pairs_outside_scope = sorted(pair for pair in tied_pairs if pair[0] not in scope)
    if pairs_outside_scope:
        source, output = pairs_outside_scope[0]
        raise PortBusy(
            f"input {source} shares a two-way circuit with a circuit that is to be removed",
            peer=output,
            device=device,
            ports=(source, output),
            hint="Include that input in the scope, or keep the circuit.",
        )
    removed_pairs |= tied_pairs
    return frozenset(removed_pairs), frozenset(target.pairs - (current.pairs - removed_pairs))


def _omit_disconnects(
    removed_pairs: frozenset[Pair], added_pairs: frozenset[Pair], device: str
) -> frozenset[Pair]:
    """Return no pairs to remove, because a new circuit of an input replaces the input's old circuit.

    Raise `Unsupported` if an input of `removed_pairs` gets no new circuit.
    """
    moved_inputs = {source for source, _ in added_pairs}
    unmoved_inputs = sorted(source for source, _ in removed_pairs if source not in moved_inputs)
    if unmoved_inputs:
        raise Unsupported(
            "every input of this switch is always connected to an output",
            device=device,
            ports=unmoved_inputs,
            hint="Name an output for each of these inputs, or leave them out of the scope.",
        )
    return frozenset()


def _find_moved_pairs(connections: CrossConnects, added_pairs: frozenset[Pair]) -> frozenset[Pair]:
    """Return the pairs that end because their input moves to another output."""
    moved_inputs = {source for source, _ in added_pairs}
    return frozenset(pair for pair in connections.items() if pair[0] in moved_inputs)


def _plan_break_then_make(
    removed_pairs: frozenset[Pair],
    added_pairs: frozenset[Pair],
    snapshot: Snapshot,
    capabilities: Capabilities,
) -> tuple[Step, ...]:
    steps: list[Step] = []
    connections_before, switch_time_s = snapshot.connections, capabilities.switch_time_s[0]
    for command_circuits in _group_commands(removed_pairs, snapshot.tied, is_bulk=capabilities.bulk_add):
        connections_after = CrossConnects(connections_before.pairs - command_circuits.pairs)
        steps.append(Step("remove", command_circuits, connections_before, connections_after, switch_time_s))
        connections_before = connections_after
    for command_circuits in _group_commands(added_pairs, frozenset(), is_bulk=capabilities.bulk_add):
        connections_after = CrossConnects(
            (connections_before.pairs - _find_moved_pairs(connections_before, command_circuits.pairs))
            | command_circuits.pairs
        )
        steps.append(Step("add", command_circuits, connections_before, connections_after, switch_time_s))
        connections_before = connections_after
    return tuple(steps)


def _group_commands(
    pairs: frozenset[Pair], tied_groups: frozenset[frozenset[Pair]], *, is_bulk: bool
) -> list[CrossConnects]:
    """Return the pairs of each command: all pairs in one command if `is_bulk`, else one pair or one tied group each."""
    if is_bulk:
        return [CrossConnects(pairs)] if pairs else []
    groups = {pair: group & pairs for group in tied_groups for pair in group & pairs}
    commands = {groups.get(pair, frozenset({pair})) for pair in pairs}
    return [CrossConnects(group) for group in sorted(commands, key=sorted)]


_UNFIT_ERRORS = {
    PortState.LOCKED: (PortLocked, "locked", "Ask who reserved it, or have it unlocked."),
    PortState.DISABLED: (PortDisabled, "disabled", "Open its shutter first."),
    PortState.FAILED: (PortFailed, "reported as broken", "Use another port, and have this one inspected."),
}


def _check_port_states(
    snapshot: Snapshot, added_pairs: Collection[Pair], removed_pairs: Collection[Pair], device: str
) -> None:
    """Raise an error if a circuit is added on an unfit port or removed from a locked one, as the device would."""
    added_ports = {port for pair in added_pairs for port in pair}
    removed_ports = {port for pair in removed_pairs for port in pair}
    for state in _UNFIT_ERRORS:
        checked_ports = added_ports | removed_ports if state is PortState.LOCKED else added_ports
        ports = sorted(port for port in checked_ports if snapshot.unfit.get(port) is state)
        if ports:
            raise make_unfit_error(state, ports, device=device)


def make_unfit_error(
    state: PortState, ports: Iterable[int], *, device: str = "", sent: str = "", received: str = ""
) -> PortError:
    """Return the error for ports that are locked, disabled or failed.

    >>> print(make_unfit_error(PortState.LOCKED, [3], device="polatis+tl1://10.0.0.2"))
    polatis+tl1://10.0.0.2: locked [port 3]. Ask who reserved it, or have it unlocked.
    """
    error_class, problem, hint = _UNFIT_ERRORS[state]
    return error_class(problem, device=device, ports=ports, sent=sent, received=received, hint=hint)


def _check_outputs_free(
    added_pairs: Collection[Pair], remaining_connections: CrossConnects, device: str
) -> None:
    inputs_by_output = remaining_connections.inputs_by_output
    for source, output in sorted(added_pairs):
        if output in inputs_by_output:
            raise PortBusy(
                f"output {output}, needed for input {source}, is used by input {inputs_by_output[output]}",
                peer=inputs_by_output[output],
                device=device,
                ports=(source, output),
                hint="Disconnect that circuit, or move its input as well.",
            )


def _format_input_range(capabilities: Capabilities) -> str:
    return f"1..{capabilities.inputs}"


def _format_output_range(capabilities: Capabilities) -> str:
    return f"{capabilities.inputs + 1}..{capabilities.inputs + capabilities.outputs}"
