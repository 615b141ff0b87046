"""SCPI of Polatis switches: golden lines from drivers that cite the vendor's manual."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import CrossConnects, PortState
from ocs_drivers.vendors.polatis import scpi_codec

pytestmark = pytest.mark.codec

GOLDEN_COMMANDS = [
    (scpi_codec.format_add(CrossConnects({1: 17, 2: 18, 3: 19})), ":oxc:swit:conn:add (@1,2,3),(@17,18,19)"),
    (scpi_codec.format_replace(CrossConnects({1: 17, 2: 18})), ":oxc:swit:conn:only (@1,2),(@17,18)"),
    (scpi_codec.format_replace(CrossConnects()), ":oxc:swit:disc:all"),
    (scpi_codec.format_remove(CrossConnects({1: 17})), ":oxc:swit:conn:sub (@1),(@17)"),
    (scpi_codec.format_shutters([2, 4], is_open=True), ":oxc:swit:port:enab (@2,4)"),
    (scpi_codec.format_shutters([2, 4], is_open=False), ":oxc:swit:port:dis (@2,4)"),
    (scpi_codec.format_power_query([193, 194, 197]), ":pmon:pow? (@193,194,197)"),
]


@pytest.mark.parametrize(("command", "expected"), GOLDEN_COMMANDS)
def test_commands_are_as_the_manual_has_them(command, expected):
    assert command == expected


GOLDEN_REPLIES = [
    (scpi_codec.decode_connections, "(@1,2,3),(@19,18,22)", CrossConnects({1: 19, 2: 18, 3: 22})),
    (scpi_codec.decode_connections, "(@),(@)", CrossConnects()),
    (scpi_codec.decode_peer, '"18"', 18),
    (scpi_codec.decode_peer, '""', None),
    (
        scpi_codec.decode_port_states,
        "(D,E,F)",
        (PortState.DISABLED, PortState.ENABLED, PortState.FAILED),
    ),
    (scpi_codec.decode_powers, "(-29.55,-30.05,-29.85)", (-29.55, -30.05, -29.85)),
    (scpi_codec.decode_powers, "(9.91E37)", (None,)),
    (scpi_codec.decode_size, "16,16", (16, 16)),
]


@pytest.mark.parametrize(("decode", "reply", "expected"), GOLDEN_REPLIES)
def test_replies_are_understood(decode, reply, expected):
    assert decode(reply) == expected


GARBAGE = [
    (
        scpi_codec.decode_connections,
        ["", "1", "(@1,2),(@17)", "(@1,1),(@17,18)", "(@1,2),(@17,17)", "(@1,),(@17,)"],
    ),
    (scpi_codec.decode_connections, ["(1),(17)", "(@1),(@17),(@2)", "(@-1),(@17)", '"(@1),(@17)"']),
    (scpi_codec.decode_peer, ["18", "'18'", '"x"', ""]),
    (scpi_codec.decode_port_states, ["(X)", "E,D", "(E", "(E,,D)"]),
    (scpi_codec.decode_powers, ["(-29.55,)", "(dark)", "-29.55"]),
    (scpi_codec.decode_size, ["16", "0,16", "16x16", "16,-16"]),
    (scpi_codec.decode_boot_mode, ["LIGHT", ""]),
    (scpi_codec.decode_size, ["00,16", "16,99999"]),
]


@pytest.mark.parametrize(
    ("decode", "reply"), [(decode, reply) for decode, replies in GARBAGE for reply in replies]
)
def test_whatever_is_not_the_language_is_a_desync(decode, reply):
    with pytest.raises(ProtocolDesync):
        decode(reply)


permutations = st.integers(0, 40).flatmap(
    lambda count: st.permutations(range(101, 101 + count)).map(
        lambda outputs: CrossConnects(zip(range(1, count + 1), outputs, strict=True))
    )
)


@given(permutations)
def test_a_configuration_survives_the_wire(target):
    written = f"{scpi_codec.format_channel_list(target)},{scpi_codec.format_channel_list(target.values())}"
    assert scpi_codec.decode_connections(written) == target


def test_the_size_is_in_the_product_code():
    assert scpi_codec.parse_product_size("I-OST-192x192-LU1-DMHNS") == (192, 192)
    assert scpi_codec.parse_product_size("OSM-16") is None
