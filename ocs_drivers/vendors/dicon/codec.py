"""Commands of DiCon banks of 1xN switches; see the package for what each is known from."""

from ocs_drivers.vendors.banks.codec import CommandSet

COMMANDS = CommandSet(
    select="ROUT{bank}:SCAN {channel}",
    query="ROUT{bank}:SCAN?",
    terminator=b"\r",
    vendor="DiCon",
    model="MXS-9100",
    switch_time_s=(0.02, 0.2),
)
OPEN_STATE = "ROUTE{bank}:OPEN:STATE?"
