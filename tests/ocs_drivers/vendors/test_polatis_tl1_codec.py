"""Polatis data lines: what is as documented is understood, everything else is a desync."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocs_drivers import Attenuation, CrossConnects, PortState
from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.vendors.polatis import tl1_codec
from ocs_drivers.vendors.polatis.readings import DARK_FLOOR_DBM, make_power_reading

pytestmark = pytest.mark.codec

UNDERSTOOD = [
    (tl1_codec.decode_size, ("SYSTEM:SIZE=16x16",), (16, 16)),
    (tl1_codec.decode_pairs, ("11,28", "4,17"), CrossConnects({4: 17, 11: 28})),
    (tl1_codec.decode_pairs, (), CrossConnects()),
    (tl1_codec.decode_port_values, ("2:x", "3:a:b", "4:"), {2: "x", 3: "a:b", 4: ""}),
    (tl1_codec.decode_powers, ("1:-29.55", "2:NONE"), {1: -29.55, 2: None}),
    (tl1_codec.decode_shutters, ("1:OPEN", "2:closed"), {1: PortState.ENABLED, 2: PortState.DISABLED}),
    (tl1_codec.decode_attenuation, ("33:NONE,0.0,0",), Attenuation("none")),
    (tl1_codec.decode_attenuation, ("33:CONVERGED,-10.0,7",), Attenuation("converged", -10.0, 7)),
]


@pytest.mark.parametrize(("decode", "lines", "expected"), UNDERSTOOD)
def test_data_lines_are_understood(decode, lines, expected):
    assert decode(lines) == expected


@pytest.mark.parametrize(
    ("decode", "lines"),
    [
        (tl1_codec.decode_size, ()),
        (tl1_codec.decode_size, ("SYSTEM:SIZE=0x16",)),
        (tl1_codec.decode_size, ("SYSTEM:SIZE=00x16",)),
        (tl1_codec.decode_size, ("SYSTEM:SIZE=16",)),
        (tl1_codec.decode_pairs, ("1-17",)),
        (tl1_codec.decode_pairs, ("1,17", "2,17")),
        (tl1_codec.decode_port_values, ("OPEN",)),
        (tl1_codec.decode_powers, ("1:dark",)),
        (tl1_codec.decode_shutters, ("1:AJAR",)),
        (tl1_codec.decode_configured_ports, ("PMON::MODE=INPUT",)),
        (tl1_codec.decode_attenuation, ("33:LOUD,1,0",)),
        (tl1_codec.decode_attenuation, ("33:ABSOLUTE",)),
        (tl1_codec.decode_attenuation, ("33:ABSOLUTE,much,0",)),
        (lambda lines: tl1_codec.decode_identity(lines, ()), ("Polatis,6.5",)),
    ],
)
def test_whatever_is_not_as_documented_is_a_desync(decode, lines):
    with pytest.raises(ProtocolDesync):
        decode(lines)


@given(
    st.sampled_from(["absolute", "relative", "converged"]),
    st.integers(-800, 800),
    st.none() | st.integers(1, 999),
)
def test_an_attenuation_survives_the_wire(mode, tenths_db, reference):
    setting = Attenuation(mode, tenths_db / 10, reference)
    assert tl1_codec.decode_attenuation((f"33:{tl1_codec.encode_attenuation(setting)}",)) == setting


def test_clearing_an_attenuator_is_a_mode():
    assert tl1_codec.encode_attenuation(Attenuation("none")) == "MODE=NONE"
    with pytest.raises(ValueError, match="attenuation mode 'none' takes no level"):
        Attenuation("none", -3.0)


def test_darkness_begins_at_the_floor():
    assert make_power_reading(DARK_FLOOR_DBM).below_floor
    assert not make_power_reading(DARK_FLOOR_DBM + 0.01).below_floor
    assert make_power_reading(None) is None
