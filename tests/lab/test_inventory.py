"""The lab file: what is read, what is refused and how, and that writing and reading are inverse."""

from __future__ import annotations

import random
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("pydantic")
skip_without("yaml")

from testbed.errors import LabFileError
from testbed.lab.inventory import get_default_key_path, load_lab, parse_lab, relocate, render_lab
from testbed.lab.model import FibreEnd, Lab, LabHost, LabNic, LabSwitch, LinkClass, SwitchTwin

TESTBED12 = Path(__file__).parents[2] / "labs" / "testbed12.yaml"


def test_the_shipped_lab_is_twelve_hosts_on_one_switch():
    lab = load_lab(TESTBED12)
    assert (lab.name, lab.simulated, len(lab.hosts), len(lab.switches)) == ("testbed12", True, 12, 1)
    assert lab.management == IPv4Network("10.99.0.0/24")
    assert lab.switches[0].address == "polatis+scpi://10.99.0.2:5025"
    assert lab.hosts[11].nics[3] == LabNic(
        "nic4", IPv4Address("10.100.12.4"), FibreEnd("ocs1", 48, 0.3), FibreEnd("ocs1", 96, 0.3)
    )
    assert lab.link.scale == 250
    assert lab.twins == {"ocs1": SwitchTwin(3082, 7025, 0.02, "DARK")}
    assert lab.ssh_key == get_default_key_path()


def test_the_interpreter_is_relative_to_the_file_and_links_are_not_followed():
    assert load_lab(TESTBED12).hosts[0].python == str(TESTBED12.parent.parent / ".venv-host/bin/python")


def test_a_fibre_may_state_its_own_loss(small_lab_text):
    text = small_lab_text().replace("transmit: 'ocs1:1'", "transmit: {port: 'ocs1:1', loss_db: 0.45}")
    nic = parse_lab(text, "labs/x.yaml").hosts[0].nics[0]
    assert (nic.transmit.loss_db, nic.receive.loss_db) == (0.45, 0.3)


def test_a_host_may_differ_from_the_others(small_lab_text):
    text = small_lab_text().replace(
        "    address: 10.100.2.100", "    address: 10.100.2.100\n    ssh: {port: 2222}"
    )
    assert [host.ssh_port for host in parse_lab(text, "x.yaml").hosts] == [22, 2222, 22]


def test_a_lab_is_real_unless_it_says_simulated(small_lab_text):
    lab = parse_lab(small_lab_text().replace("simulated: true\n", ""), "x.yaml")
    assert not lab.simulated
    assert lab.twins == {}


@pytest.mark.slow
def test_damaged_files_are_read_or_refused_but_never_break(small_lab_text):
    text = small_lab_text()
    random_source = random.Random(12)
    refused = []
    for _ in range(600):
        damaged = _damage(text, random_source)
        try:
            parse_lab(damaged, "labs/x.yaml")
        except LabFileError as error:
            refused.append(str(error))
    assert all(message.startswith("labs/x.yaml:") for message in refused)
    assert len(refused) > 300


def _damage(text: str, source: random.Random) -> str:
    """Return text with a few characters, words or lines removed, doubled or exchanged."""
    for _ in range(source.randint(1, 3)):
        lines = text.splitlines(keepends=True)
        here, there = source.randrange(len(lines)), source.randrange(len(lines))
        at = source.randrange(len(text))
        text = source.choice(
            [
                "".join(lines[:here] + lines[here + 1 :]),
                "".join([*lines[:here], lines[there], *lines[here:]]),
                text[:at] + text[at + source.randint(1, 4) :],
                text[:at] + source.choice(":{}[]'\"&*#-\t\n!%@`|>?,0a\x00é") + text[at:],
            ]
        )
    return text


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
losses = st.floats(0, 40, allow_nan=False)


@st.composite
def labs(draw) -> Lab:
    """Return labs as the loader gives them: unique names, ports and addresses, all else free."""
    count, nics = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    planes = draw(st.integers(1, 2))
    host_names = draw(st.lists(names, min_size=count + planes, max_size=count + planes, unique=True))
    simulated = draw(st.booleans())
    switch_names = host_names[count:]
    inputs = count * nics + draw(st.integers(0, 3))
    ports = draw(st.permutations(range(1, inputs + 1)))
    outputs = draw(st.permutations(range(inputs + 1, 2 * inputs + 1)))
    hosts = tuple(
        LabHost(
            host_names[h],
            IPv4Address("10.99.0.11") + h,
            IPv4Address("10.100.0.100") + 256 * h,
            tuple(
                LabNic(
                    f"nic{k}",
                    IPv4Address("10.100.0.1") + 256 * h + k,
                    FibreEnd(switch_names[k % planes], ports[h * nics + k], draw(losses)),
                    FibreEnd(switch_names[k % planes], outputs[h * nics + k], draw(losses)),
                )
                for k in range(nics)
            ),
            draw(st.sampled_from(["python3", "/opt/a b/python", "/usr/bin/python3"])),
            draw(st.sampled_from(["root", "operator"])),
            draw(st.integers(1, 65535)),
        )
        for h in range(count)
    )
    switches = tuple(
        LabSwitch(name, f"polatis+scpi://10.99.0.{2 + i}:5025", inputs, inputs, draw(losses))
        for i, name in enumerate(switch_names)
    )
    twin = SwitchTwin(
        draw(
            st.integers(1, 65535).filter(lambda port: port not in {5025, 7025})
        ),  # those of SCPI and control
        7025,
        draw(st.none() | st.floats(0, 9)),
        draw(st.sampled_from(["DARK", "AUTOSAVE"])),
        draw(st.sampled_from([1.0, 600.0])),
        draw(st.sampled_from([{}, {"idle_s": "108000"}])),
    )
    return Lab(
        draw(names),
        Path("labs/drawn.yaml"),
        simulated,
        IPv4Network("10.99.0.0/24"),
        hosts,
        switches,
        dict.fromkeys(switch_names, twin) if simulated else {},
        LinkClass(
            draw(st.floats(1, 1e6)),
            draw(st.floats(1, 800)),
            draw(st.integers(576, 9216)),
            draw(st.floats(-20, 10)),
        ),
        draw(st.sampled_from([get_default_key_path(), Path("/keys/lab")])),
    )


@pytest.mark.slow
@given(labs())
def test_what_is_written_reads_back_equal(lab):
    assert parse_lab(render_lab(lab), lab.path) == lab


@pytest.mark.long
@given(labs().filter(lambda lab: lab.simulated), st.integers(0, 255))
def test_relocation_moves_every_management_address_and_nothing_else(lab, third):
    subnet = IPv4Network(f"10.98.{third}.0/24")
    moved = relocate(lab, subnet)
    assert all(host.management in subnet for host in moved.hosts)
    assert [host.management.packed[3] for host in moved.hosts] == [
        host.management.packed[3] for host in lab.hosts
    ]
    assert all(f"//10.98.{third}." in switch.address for switch in moved.switches)
    assert [host.nics for host in moved.hosts] == [host.nics for host in lab.hosts]
    assert relocate(moved, lab.management) == lab
    assert parse_lab(render_lab(moved), lab.path) == moved


def test_a_real_lab_is_not_moved(small_lab_text):
    lab = replace(parse_lab(small_lab_text(), "x.yaml"), simulated=False)
    with pytest.raises(ValueError, match="lab 'small' is real: its addresses cannot be changed"):
        relocate(lab, IPv4Network("10.98.0.0/24"))


def test_a_lab_does_not_fit_a_smaller_network(small_lab_text):
    with pytest.raises(
        ValueError, match=r"10\.98\.0\.0/28 is smaller than the management network 10\.99\.0\.0/24"
    ):
        relocate(parse_lab(small_lab_text(), "x.yaml"), IPv4Network("10.98.0.0/28"))
