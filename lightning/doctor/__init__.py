"""Facts that stand between a user and a product of light: what `lightning doctor` reports.

`environment()` looks at what is installed, `device(address)` at a board or a twin. Both only look: a device is asked
for its state, runs one dark acquisition, and, where it has a calibration, the products with which drift is watched.
"""

from __future__ import annotations

from lightning.doctor.devices import device
from lightning.doctor.finding import Finding
from lightning.doctor.installation import environment

__all__ = ["Finding", "device", "environment"]
