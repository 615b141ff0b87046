"""Why a lab does not start."""

from __future__ import annotations

from lightbed.errors import LightbedError


class LabError(LightbedError):
    """A lab that cannot start as asked. `code` is a stable word for programs, `hint` what a person can do.

    Codes: `document`, `not_root`, `subnet_taken`, `no_such_lab`, `no_library`, `interrupted`;
    `sim.twins.hosts.netns.KernelFault` adds those of the kernel, and any other refusal of the machine is `machine`.
    """

    def __init__(self, what: str, *, hint: str, code: str) -> None:
        self.what = what
        self.hint = hint
        self.code = code
        super().__init__(f"{what}. {hint}")
