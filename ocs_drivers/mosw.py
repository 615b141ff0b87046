"""Viavi MAP-200 optical switches (mOSW): a bank of 1xN switches over SCPI on TCP, with a monitor per bank.

    :ROUTe:CLOSe 1,1,5         bank 1, common port 1, channel 5; silent              (assumption)
    :ROUTe:CLOSe? 1            the channel; alone, or after bank and common port     (assumption)
    :ROUTe:MONitor? 1          `0, -8.000`: direction, dBm                           (manual, page 91)
    :SYSTem:ERRor?             `0,"No error"`                                        (assumption)

Proven against a simulated switch only: no real unit has been at the other end yet.
"""

from __future__ import annotations

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.bank_driver import BankSwitch, size_in
from ocs_drivers.bank_words import Words
from ocs_drivers.credentials import Credentials
from ocs_drivers.lines import visa_line

PORT = 8100
"""Where a MAP chassis answers SCPI; an assumption, so say otherwise in the address."""

WORDS = Words(
    select=":ROUTe:CLOSe {bank},1,{channel}",
    query=":ROUTe:CLOSe? {bank}",
    errors=":SYSTem:ERRor?",
    monitor=":ROUTe:MONitor? {bank}",
    vendor="Viavi",
    model="mOSW",
)


def tcp_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> BankSwitch:
    """An unopened `mosw+scpi://host?banks=2&channels=8` on PyVISA; there is no login."""
    del credentials
    banks, channels = size_in(address.only_options("banks", "channels"))
    address = address.with_port(PORT)
    line = visa_line(address, PORT)
    return BankSwitch(str(address), line, WORDS, banks=banks, channels=channels, timeout_s=timeout_s)
