"""From what a switch holds to what it should hold: pure, and the same for every vendor."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ocs_drivers.errors import PortBusy, PortError, UnknownPort, WrongSide
from ocs_drivers.model import Capabilities, CrossConnects, Snapshot, Step


def check_inputs(ports: Iterable[int], capabilities: Capabilities, *, device: str = "") -> None:
    """Raise `UnknownPort` or `WrongSide` unless all ports are inputs, 1..inputs."""
    ports = tuple(ports)
    check_known(ports, capabilities, device=device)
    wrong = [port for port in ports if port > capabilities.inputs]
    if wrong:
        raise WrongSide(
            "outputs were named where inputs belong",
            device=device,
            ports=wrong,
            cure=f"Inputs are {_range_of_inputs(capabilities)}; exchange the ends of the pair.",
        )


def check_outputs(ports: Iterable[int], capabilities: Capabilities, *, device: str = "") -> None:
    """Raise `UnknownPort` or `WrongSide` unless all ports are outputs, inputs+1..inputs+outputs."""
    ports = tuple(ports)
    check_known(ports, capabilities, device=device)
    wrong = [port for port in ports if port <= capabilities.inputs]
    if wrong:
        raise WrongSide(
            "inputs were named where outputs belong",
            device=device,
            ports=wrong,
            cure=f"Outputs are {_range_of_outputs(capabilities)}; exchange the ends of the pair.",
        )


def check_known(ports: Iterable[int], capabilities: Capabilities, *, device: str = "") -> None:
    """Raise `UnknownPort` unless the device has all these ports."""
    highest = capabilities.inputs + capabilities.outputs
    unknown = [port for port in ports if not 1 <= port <= highest]
    if unknown:
        raise UnknownPort(
            "the switch has no such port",
            device=device,
            ports=unknown,
            cure=f"Inputs are {_range_of_inputs(capabilities)}, outputs {_range_of_outputs(capabilities)}.",
        )


def check_target(
    target: Mapping[int, int],
    scope: Collection[int] | None,
    capabilities: Capabilities,
    *,
    device: str = "",
) -> None:
    """Raise `UnknownPort`, `WrongSide` or `PortError` when the target cannot be right for this device."""
    check_inputs(target.keys(), capabilities, device=device)
    check_outputs(target.values(), capabilities, device=device)
    if scope is None:
        return
    check_inputs(scope, capabilities, device=device)
    outside = [port for port in target if port not in scope]
    if outside:
        raise PortError(
            "the target names inputs outside its scope",
            device=device,
            ports=outside,
            cure="Widen the scope or leave these inputs out of the target.",
        )


def plan(
    target: CrossConnects,
    seen: Snapshot | CrossConnects,
    *,
    capabilities: Capabilities,
    scope: Collection[int] | None = None,
    device: str = "",
) -> tuple[Step, ...]:
    """The device's own atomic steps from `seen` to `target`; empty when nothing differs in the scope.

    One `replace` when the whole switch is meant and the device can do that at once, else `remove`, then
    `add` (break before make), limited to the inputs in `scope`. Raises what `check_target` raises, and
    `PortBusy` when a circuit outside the scope holds a wanted output.
    """
    check_target(target, scope, capabilities, device=device)
    before = seen.connections if isinstance(seen, Snapshot) else seen
    if scope is None or len(set(scope)) == capabilities.inputs:
        scope = range(1, capabilities.inputs + 1)
        if capabilities.atomic_whole:
            return _replace(target, before, capabilities)
    return _break_then_make(target, before, frozenset(scope), capabilities, device)


def _replace(target: CrossConnects, before: CrossConnects, capabilities: Capabilities) -> tuple[Step, ...]:
    if target == before:
        return ()
    return (Step("replace", target, before, target, capabilities.switch_time_s[0]),)


def _break_then_make(
    target: CrossConnects,
    before: CrossConnects,
    scope: frozenset[int],
    capabilities: Capabilities,
    device: str,
) -> tuple[Step, ...]:
    remove = CrossConnects((i, o) for i, o in before.items() if i in scope and target.get(i) != o)
    add = CrossConnects((i, o) for i, o in target.items() if before.get(i) != o)
    broken = CrossConnects(before.pairs - remove.pairs)
    _refuse_busy_outputs(add, broken, device)
    made = CrossConnects(broken.pairs | add.pairs)
    switch_time_s = capabilities.switch_time_s[0]
    steps = (
        Step("remove", remove, before, broken, switch_time_s),
        Step("add", add, broken, made, switch_time_s),
    )
    return tuple(step for step in steps if step.pairs)


def _refuse_busy_outputs(add: CrossConnects, kept: CrossConnects, device: str) -> None:
    holder = kept.inputs_of
    for source, output in add.items():
        if output in holder:
            raise PortBusy(
                f"output {output}, wanted for input {source}, is held by input {holder[output]}",
                peer=holder[output],
                device=device,
                ports=(source, output),
                cure="Disconnect that circuit, or take its input into the scope.",
            )


def _range_of_inputs(capabilities: Capabilities) -> str:
    return f"1..{capabilities.inputs}"


def _range_of_outputs(capabilities: Capabilities) -> str:
    return f"{capabilities.inputs + 1}..{capabilities.inputs + capabilities.outputs}"
