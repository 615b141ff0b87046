"""A Polatis switch over SCPI.

A whole apply is three round trips: read; `only ...;*OPC?`; read and error queue in one. SCPI sets are
silent, so nothing counts as done before it was read back.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from itertools import batched

from ocs_drivers import planning, scpi
from ocs_drivers.contract import Guard, unguarded
from ocs_drivers.driver import SwitchDriver
from ocs_drivers.errors import DeviceError, ProtocolDesync, TransportError, lost_when_closed
from ocs_drivers.model import (
    Capabilities,
    CrossConnects,
    Identity,
    Outcome,
    PortInfo,
    PortState,
    Power,
    Side,
    Snapshot,
    Step,
)
