"""Commands of Viavi MAP-200 optical switches; see the package for what each is known from."""

from ocs_drivers.vendors.banks.codec import CommandSet

COMMANDS = CommandSet(
    select=":ROUTe:CLOSe {bank},1,{channel}",
    query=":ROUTe:CLOSe? {bank}",
    errors=":SYSTem:ERRor?",
    monitor=":ROUTe:MONitor? {bank}",
    vendor="Viavi",
    model="mOSW",
)
