"""Why a lab does not start."""

from __future__ import annotations


class LabError(Exception):
    """A lab that cannot start as asked. `code` is a stable word for programs, `cure` what a person can do.

    Codes: `document`, `not_root`, `subnet_taken`, `no_such_lab`, `no_library`, `interrupted`;
    `sim.twins.netns.KernelFault` adds those of the kernel, and any other refusal of the machine is `machine`.
    """

    def __init__(self, what: str, *, cure: str, code: str) -> None:
        self.what = what
        self.cure = cure
        self.code = code
        super().__init__(f"{what}. {cure}")
