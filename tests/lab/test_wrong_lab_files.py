"""Wrong lab files: every mistake that a person makes is refused with file, line, what is wrong, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import skip_without

skip_without("pydantic")
skip_without("yaml")

import yaml

from ocs_drivers.families import list_lab_schemes
from testbed.errors import LabFileError
from testbed.lab.document import parse_document
from testbed.lab.inventory import load_lab, parse_lab

NICS = """    nics:
      - {name: nic1, address: 10.100.1.1, transmit: 'ocs1:1', receive: 'ocs1:7'}
      - {name: nic2, address: 10.100.1.2, transmit: 'ocs1:2', receive: 'ocs1:8'}
"""


def nested(first: str, row: str) -> str:
    """Return ten keys of which each means the one before nine times: `row` is a value with nine places."""
    keys = [f"a: &a {first}"]
    keys += [
        f"{key}: &{key} {row.format(', '.join([f'*{last}'] * 9))}"
        for last, key in zip("abcdefghi", "bcdefghij", strict=True)
    ]
    return "\n".join(keys) + "\n"


BOMB = nested("[1, 1, 1, 1, 1, 1, 1, 1, 1]", "[{}]")
MERGES = nested("{x: 1}", "{{<<: [{}]}}")

BAD = {
    "unknown key": (
        "    inputs: 6",
        "    inputs: 6\n    imputs: 6",
        9,
        "unknown key 'imputs', did you mean 'inputs'?",
        "allowed here: name, address, inputs, outputs, insertion_loss_db, twin",
    ),
    "unknown key deep": (
        "name: nic1, address: 10.100.1.1",
        "name: nic1, adress: 10.100.1.1",
        16,
        "did you mean 'address'?",
        "allowed here: name, address, gpu, transmit, receive, unused",
    ),
    "key twice": (
        "name: small",
        "name: small\nname: other",
        2,
        "2: key 'name' appears twice (already on line 1); keep one",
        "keep one",
    ),
    "missing key": ("management: 10.99.0.0/24\n", "", 1, "'management' is missing", "add 'management: ...'"),
    "wrong type": (
        "    inputs: 6",
        "    inputs: six",
        8,
        "'switches[0].inputs': input should be a valid integer, not 'six'",
        "write a whole number like 48, without quotes",
    ),
    "word read as truth": (
        "name: small",
        "name: yes",
        1,
        "not True (put it in quotes to make it text)",
        "put the value in quotes",
    ),
    "bad address": (
        "management: 10.99.0.11",
        "management: 10.99.0.311",
        13,
        "not permitted in '10.99.0.311'",
        "write four numbers like 10.99.0.11",
    ),
    "address as number": (
        "management: 10.99.0.11",
        "management: 17",
        13,
        "17 is not an IPv4 address",
        "write four numbers like 10.99.0.11",
    ),
    "network with host bits": (
        "10.99.0.0/24",
        "10.99.0.3/24",
        3,
        "10.99.0.3/24 has host bits set",
        "write a network like 10.99.0.0/24",
    ),
    "mtu too large": (
        "mtu: 9000",
        "mtu: 90000",
        4,
        "less than or equal to 9216, not 90000",
        "choose a value in this range",
    ),
    "infinite rate": ("rate_mbps: 100", "rate_mbps: .inf", 4, "finite number", "write a number like 0.3"),
    "not switch:port": (
        "transmit: 'ocs1:1'",
        "transmit: 'ocs1-1'",
        16,
        "'ocs1-1' is not SWITCH:PORT",
        "write switch and port in quotes: 'ocs1:17'",
    ),
    "negative loss": (
        "transmit: 'ocs1:1'",
        "transmit: {port: 'ocs1:1', loss_db: -1}",
        16,
        "greater than or equal to 0",
        "choose a value in this range",
    ),
    "host twice": (
        "- name: b",
        "- name: a",
        18,
        "'a' appears twice (already used on line 12)",
        "rename one of them",
    ),
    "nic twice": (
        "name: nic2, address: 10.100.1.2",
        "name: nic1, address: 10.100.1.2",
        17,
        "interface of host 'a' 'nic1'",
        "rename one of them",
    ),
    "nic not simulated": (
        "name: nic1,",
        "name: Eth0.1,",
        16,
        "interface 'Eth0.1' of host 'a' cannot be simulated",
        "use lower-case letters and digits, like nic1",
    ),
    "host named like switch": (
        "- name: b",
        "- name: ocs1",
        18,
        "'ocs1' appears twice (already used on line 6)",
        "rename one of them",
    ),
    "port used twice": (
        "transmit: 'ocs1:2'",
        "transmit: 'ocs1:1'",
        17,
        "port 1 of switch 'ocs1' is used twice: by a/nic1 (transmit, line 16) and by a/nic2 (transmit)",
        "check which fibre ends there, and correct the port of the other fibre",
    ),
    "unknown switch": (
        "transmit: 'ocs1:2'",
        "transmit: 'ocs2:2'",
        17,
        "of a/nic2 ends at switch 'ocs2', which does not exist",
        "name a switch of this file (ocs1)",
    ),
    "no such port": (
        "receive: 'ocs1:7'",
        "receive: 'ocs1:70'",
        16,
        "of a/nic1 ends at port 70, which switch 'ocs1' does not have",
        "inputs are 1..6, outputs are 7..12",
    ),
    "port zero": (
        "transmit: 'ocs1:1'",
        "transmit: 'ocs1:0'",
        16,
        "ends at port 0",
        "inputs are 1..6, outputs are 7..12",
    ),
    "transmit into output": (
        "transmit: 'ocs1:1'",
        "transmit: 'ocs1:7'",
        16,
        "ends in output 7 of switch 'ocs1'",
        "a transmitter connects to an input, 1..6",
    ),
    "receive from input": (
        "receive: 'ocs1:7'",
        "receive: 'ocs1:1'",
        16,
        "comes from input 1 of switch 'ocs1'",
        "a receiver connects to an output, 7..12",
    ),
    "too few inputs": (
        "    inputs: 6",
        "    inputs: 4",
        8,
        "too few ports: 6 fibres end in the 4 inputs of switch 'ocs1'",
        "give 'ocs1' 6 inputs or more, or move NICs to another switch",
    ),
    "too few outputs": (
        "    outputs: 6",
        "    outputs: 5",
        9,
        "too few ports: 6 fibres end in the 5 outputs",
        "give 'ocs1' 6 outputs or more, or move NICs to another switch",
    ),
    "outside management": (
        "management: 10.99.0.12",
        "management: 10.98.0.12",
        19,
        "outside the management network 10.99.0.0/24",
        "choose an address inside 10.99.0.0/24, or correct 'management'",
    ),
    "switch outside management": (
        "scpi://10.99.0.2",
        "scpi://10.98.0.2",
        7,
        "outside the management network",
        "choose an address inside 10.99.0.0/24, or correct 'management'",
    ),
    "broadcast": (
        "management: 10.99.0.12",
        "management: 10.99.0.255",
        19,
        "not a host address",
        "choose another address inside 10.99.0.0/24",
    ),
    "our own address": (
        "management: 10.99.0.12",
        "management: 10.99.0.1",
        19,
        "which the simulation itself uses",
        "choose another address inside 10.99.0.0/24",
    ),
    "address twice": (
        "address: 10.100.2.1,",
        "address: 10.100.1.2,",
        22,
        "b/nic1 has the address 10.100.1.2 of a/nic2, line 17",
        "give each its own address",
    ),
    "data inside management": (
        "address: 10.100.2.1,",
        "address: 10.99.0.77,",
        22,
        "inside the management network",
        "links and nodes need addresses in a network of their own",
    ),
    "data not routable": (
        "address: 10.100.2.1,",
        "address: 127.0.0.9,",
        22,
        "which cannot be routed",
        "choose an address like 10.100.1.1",
    ),
    "not a switch address": (
        "polatis+scpi://10.99.0.2:5025",
        "over there",
        7,
        "'over there' is not the address of a switch",
        "write it like polatis+scpi://10.99.0.2:5025",
    ),
    "no twin for that": (
        "polatis+scpi://",
        "dicon+serial://",
        7,
        "no simulated switch of a lab supports 'dicon+serial'",
        f"use one of {', '.join(list_lab_schemes())}; or 'simulated: false'",
    ),
    "twin of a family without a port": (
        "polatis+scpi://10.99.0.2:5025",
        "telescent+cli://10.99.0.2",
        7,
        "the simulated switch 'ocs1' has no TCP port",
        "write telescent+cli://10.99.0.2:PORT",
    ),
    "a twin's clock stands still": (
        "    outputs: 6",
        "    outputs: 6\n    twin: {speed: 0}",
        10,
        "greater than 0, not 0",
        "choose a value in this range",
    ),
    "switch by name": (
        "polatis+scpi://10.99.0.2:5025",
        "polatis+scpi://ocs.lab:5025",
        7,
        "no numeric address",
        "give it an address inside 10.99.0.0/24",
    ),
    "twin of a real switch": (
        "    outputs: 6",
        "    outputs: 6\n    twin: {}",
        10,
        "switch 'ocs1' of a real lab has a twin",
        "remove 'twin' or set 'simulated: true'",
    ),
    "shell in the user": (
        "ssh: {",
        "ssh: {user: 'root;reboot', ",
        10,
        "is not a user name",
        "correct the value",
    ),
    "not printable": (
        "name: small",
        "name: sm\x00all",
        1,
        "not YAML (unacceptable character #x0000",
        "remove it",
    ),
    "not yaml": ("hosts:\n", "hosts: [\n", 12, "not YAML", "correct the punctuation"),
    "alias in itself": (
        "hosts:\n",
        "hosts: &all\n  - *all\n",
        11,
        "an alias that contains itself",
        "write the value out",
    ),
    "tab for indentation": (
        "    inputs: 6",
        "\tinputs: 6",
        8,
        "found character '\\t'",
        "indent with spaces, not with tabs",
    ),
    "colon without a blank": (
        "    inputs: 6",
        "    inputs:6",
        8,
        "could not find expected ':'",
        "write 'key: value', with a space after the colon",
    ),
    "wrong indentation": (
        "    management: 10.99.0.11",
        "   management: 10.99.0.11",
        13,
        "expected <block end>",
        "check the indentation and the quotes of this line and the one before",
    ),
    "quotes left open": (
        "address: 10.100.1.100",
        "address: '10.100.1.100",
        16,
        "not YAML",
        "check the indentation and the quotes of this line and the one before",
    ),
    "two documents": (
        "hosts:\n",
        "---\nhosts:\n",
        11,
        "found another document",
        "remove the line '---': a lab is one document",
    ),
    "foreign tag": (
        "name: small",
        "name: !!python/object:os.system small",
        1,
        "could not determine a constructor for the tag",
        "remove the '!' and the word after it",
    ),
    "star before a name": (
        "name: small",
        "name: *small",
        1,
        "found undefined alias 'small'",
        "put the value in quotes, or define '&' before it is used",
    ),
    "percent before a name": (
        "name: small",
        "name: %small",
        1,
        "found character '%'",
        "put the value in quotes",
    ),
    "merge of a number": (
        "name: small",
        "name: small\n<<: 17",
        2,
        "expected a mapping or list of mappings for merging",
        "write '<<: *name' of a mapping, or leave it out",
    ),
    "key that is a list": (
        "hosts:\n",
        "? [a]\n: 1\nhosts:\n",
        11,
        "a key that is not a plain word",
        "write 'key: value'",
    ),
    "aliases that explode": (
        "name: small",
        BOMB,
        5,
        "aliases that stand for more than 20000 values",
        "write them out",
    ),
    "merges that explode": (
        "name: small",
        MERGES,
        5,
        "aliases that stand for more than 20000 values",
        "write them out",
    ),
    "ports in quotes": (
        "    inputs: 6",
        "    inputs: '6'",
        8,
        "input should be a valid integer, not '6'",
        "write a whole number like 48, without quotes",
    ),
    "ports with a fraction": (
        "    inputs: 6",
        "    inputs: 6.0",
        8,
        "not 6.0",
        "write a whole number like 48, without quotes",
    ),
    "no ports": (
        "    inputs: 6",
        "    inputs: 0",
        8,
        "greater than or equal to 1, not 0",
        "choose a value in this range",
    ),
    "too many ports": (
        "    outputs: 6",
        "    outputs: 1000000",
        9,
        "less than or equal to 100000, not 1000000",
        "choose a value in this range",
    ),
    "key without a value": (
        "    inputs: 6",
        "    inputs:",
        8,
        "'switches[0].inputs': there is no value",
        "write a value after the key, or remove the key",
    ),
    "name that is a date": (
        "name: small",
        "name: 2024-01-01",
        1,
        "not 2024-01-01 (put it in quotes to make it text)",
        "put the value in quotes",
    ),
    "name that is a number": (
        "- name: b",
        "- name: 17",
        18,
        "not 17 (put it in quotes to make it text)",
        "put the value in quotes",
    ),
    "name with capitals": ("name: small", "name: Small", 1, "'Small' is not a name", "choose another name"),
    "name too long": (
        "- name: b",
        "- name: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        18,
        "is not a name of at most 31",
        "choose another name",
    ),
    "interface name too long": (
        "name: nic1,",
        "name: nicnicnicnicnic1,",
        16,
        "is not an interface name of the kernel",
        "choose another name",
    ),
    "truth in quotes": (
        "simulated: true",
        "simulated: 'true'",
        2,
        "input should be a valid boolean, not 'true'",
        "write true or false, without quotes",
    ),
    "leading zero in an address": (
        "management: 10.99.0.11",
        "management: 10.099.0.11",
        13,
        "Leading zeros are not permitted",
        "write four numbers like 10.99.0.11",
    ),
    "address of IPv6": (
        "management: 10.99.0.11",
        "management: fe80::1",
        13,
        "Expected 4 octets in 'fe80::1'",
        "write four numbers like 10.99.0.11",
    ),
    "name for an address": (
        "management: 10.99.0.11",
        "management: a.lab",
        13,
        "Expected 4 octets in 'a.lab'",
        "write four numbers like 10.99.0.11",
    ),
    "prefix length at an address": (
        "management: 10.99.0.11",
        "management: 10.99.0.11/24",
        13,
        "Unexpected '/'",
        "write four numbers like 10.99.0.11",
    ),
    "network without a prefix length": (
        "10.99.0.0/24",
        "10.99.0.0",
        3,
        "'10.99.0.0' is not an IPv4 network",
        "write a network like 10.99.0.0/24",
    ),
    "network of no size": (
        "10.99.0.0/24",
        "10.99.0.0/33",
        3,
        "'33' is not a valid netmask",
        "write a network like 10.99.0.0/24",
    ),
    "multicast address": (
        "address: 10.100.2.1,",
        "address: 224.0.0.1,",
        22,
        "which cannot be routed",
        "choose an address like 10.100.1.1",
    ),
    "rate of zero": (
        "rate_mbps: 100",
        "rate_mbps: 0",
        4,
        "greater than 0, not 0",
        "choose a value in this range",
    ),
    "rate with a unit": (
        "rate_mbps: 100",
        "rate_mbps: 100Mbit",
        4,
        "valid number, not '100Mbit'",
        "write a number like 0.3, without quotes and without a unit",
    ),
    "rate missing": ("rate_mbps: 100, ", "", 4, "'rate_mbps' is missing in 'link'", "add 'rate_mbps: ...'"),
    "mtu too small": (
        "mtu: 9000",
        "mtu: 100",
        4,
        "greater than or equal to 576, not 100",
        "choose a value in this range",
    ),
    "negative port": (
        "transmit: 'ocs1:1'",
        "transmit: 'ocs1:-1'",
        16,
        "'ocs1:-1' is not SWITCH:PORT",
        "write switch and port in quotes: 'ocs1:17'",
    ),
    "port without a switch": (
        "transmit: 'ocs1:1'",
        "transmit: 1",
        16,
        "input should be a mapping of keys to values, not 1",
        "write switch and port in quotes: 'ocs1:17'",
    ),
    "time of day for a port": (
        "transmit: 'ocs1:1'",
        "transmit: 12:30",
        16,
        "not 750",
        "write switch and port in quotes: 'ocs1:17'",
    ),
    "fibre missing": (
        "transmit: 'ocs1:1', ",
        "",
        16,
        "'transmit' is missing in 'hosts[0].nics[0]'",
        "add it, or run `testbed discover labs/x.yaml -o WIRED.yaml` to find all missing ones",
    ),
    "no interfaces": (NICS, "    nics: []\n", 15, "'hosts[0].nics': the list is empty", "list at least one"),
    "interfaces missing": (NICS, "", 12, "'nics' is missing in 'hosts[0]'", "add 'nics: ...'"),
    "host without keys": (
        "  - name: b\n",
        "  -\n  - name: b\n",
        18,
        "'hosts[1]': there is no value",
        "write a value after the key, or remove the key",
    ),
    "key that nobody knows at the top": (
        "hosts:\n",
        "hosts: 3\nothers:\n",
        12,
        "unknown key 'others'",
        "allowed here: name, simulated, management, link, switches, ssh, hosts, boards",
    ),
    "SSH port too high": (
        "ssh: {",
        "ssh: {port: 70000, ",
        10,
        "less than or equal to 65535, not 70000",
        "choose a value in this range",
    ),
    "empty path": (
        "ssh: {",
        "ssh: {key: '', ",
        10,
        "'' is not a path of one or more printable characters",
        "correct the value",
    ),
    "switch's TCP port too high": (
        "10.99.0.2:5025",
        "10.99.0.2:70250",
        7,
        "is not a TCP port",
        "use one from 1 to 65535",
    ),
    "switch without a language": (
        "polatis+scpi://10.99.0.2:5025",
        "10.99.0.2",
        7,
        "'10.99.0.2' is not the address of a switch",
        "write it like polatis+scpi://10.99.0.2:5025",
    ),
    "boot mode in small letters": (
        "    outputs: 6",
        "    outputs: 6\n    twin: {boot_mode: dark}",
        10,
        "'DARK', 'RESTORE' or 'AUTOSAVE', not 'dark'",
        "write one of these values exactly",
    ),
    "time with a unit": (
        "    outputs: 6",
        "    outputs: 6\n    twin: {switch_time_s: 20ms}",
        10,
        "valid number, not '20ms'",
        "write a number like 0.3, without quotes and without a unit",
    ),
    "negative time": (
        "    outputs: 6",
        "    outputs: 6\n    twin: {switch_time_s: -1}",
        10,
        "greater than or equal to 0, not -1",
        "choose a value in this range",
    ),
    "twin's key misspelt": (
        "    outputs: 6",
        "    outputs: 6\n    twin: {switch_time: 1}",
        10,
        "did you mean 'switch_time_s'?",
        "allowed here: tl1_port, control_port, switch_time_s, speed, options, boot_mode",
    ),
    "two listeners on one port": (
        "    outputs: 6",
        "    outputs: 6\n    twin: {control_port: 5025}",
        10,
        "'control_port' of a twin is 5025, which is also the port of its address",
        "choose another port",
    ),
    "switch twice": (
        "ssh: {",
        "  - {name: ocs1, address: 'polatis+scpi://10.99.0.3:5025', inputs: 2, outputs: 2}\nssh: {",
        10,
        "'ocs1' appears twice (already used on line 6)",
        "rename one of them",
    ),
    "two switches at one address": (
        "ssh: {",
        "  - {name: ocs2, address: 'polatis+scpi://10.99.0.2:5025', inputs: 2, outputs: 2}\nssh: {",
        10,
        "switch 'ocs2' has the address 10.99.0.2 of switch 'ocs1', line 7",
        "give each its own address",
    ),
}
"""By name: what is replaced, by what, the line of the error, words of it, and its hint."""


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_file_is_refused_with_line_and_hint(case, small_lab_text):
    before, after, line, words, hint = BAD[case]
    text = small_lab_text(simulated=case != "twin of a real switch")
    assert before in text
    with pytest.raises(LabFileError) as caught:
        parse_lab(text.replace(before, after, 1), "labs/x.yaml")
    message = str(caught.value)
    assert message.startswith(f"labs/x.yaml:{line}: "), message
    assert words in message
    assert message.endswith(f"; {hint}")
    assert "\n" not in message


def test_a_long_list_that_is_written_out_is_no_explosion(small_lab_text):
    name = parse_lab(small_lab_text(hosts=26, nics=9), "x.yaml").name
    assert name == "small"


def test_aliases_that_stand_for_little_are_read(small_lab_text):
    text = small_lab_text().replace("10.100.1.100", "10.100.1.100\n    ssh: &access {user: ann, port: 2222}")
    text = text.replace("10.100.2.100", "10.100.2.100\n    ssh: *access")
    assert [(host.user, host.ssh_port) for host in parse_lab(text, "x.yaml").hosts] == [
        ("ann", 2222),
        ("ann", 2222),
        ("root", 22),
    ]


ENCODED = {
    "UTF-16": ("utf-16", "not UTF-8 text"),
    "Latin-1": ("latin-1", "not UTF-8 text"),
}


@pytest.mark.parametrize("case", ENCODED)
def test_text_of_another_encoding_is_refused(case, tmp_path, small_lab_text):
    encoding, words = ENCODED[case]
    path = tmp_path / "lab.yaml"
    path.write_bytes(small_lab_text().replace("hosts:", "hosts:  # f\xfcr alle").encode(encoding))
    with pytest.raises(LabFileError, match=rf"lab\.yaml:1: {words} .*; save it as UTF-8$"):
        load_lab(path)


@pytest.mark.parametrize("written", ["\ufeff{}", "{}"], ids=["with a mark of byte order", "plain"])
@pytest.mark.parametrize("ending", ["\r\n", "\n"], ids=["lines of Windows", "lines of Unix"])
def test_files_of_other_systems_are_read(written, ending, tmp_path, small_lab_text):
    path = tmp_path / "lab.yaml"
    path.write_bytes(written.format(small_lab_text()).replace("\n", ending).encode())
    assert load_lab(path).name == "small"


def test_a_directory_is_no_lab_file(tmp_path):
    with pytest.raises(
        LabFileError, match=r":1: cannot be read \(Is a directory\); give the path of a lab file"
    ):
        load_lab(tmp_path)


def test_a_missing_file_is_named():
    with pytest.raises(
        LabFileError, match=r"^nowhere/lab\.yaml:1: cannot be read \(No such file or directory\); give "
    ):
        load_lab("nowhere/lab.yaml")


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(LabFileError, match=r"lab\.yaml:1: not UTF-8"):
        load_lab(path)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "17", "null"])
def test_a_file_that_is_no_mapping_is_refused(text):
    with pytest.raises(LabFileError, match="not a mapping"):
        parse_lab(text, "x.yaml")


PIECES = [
    "\t",
    "  ",
    ":",
    "- ",
    "#",
    "'",
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a ",
    "*a",
    "!x ",
    "|",
    ">",
    "%",
    "? ",
    "~",
]
PIECES += ["\n", "---\n", "...\n", "\0", "\x85", "\u2028", "\ufeff", "\u00e9", "<<: ", "0x", "1_0", "\\"]


def read(text):
    """Return what a text holds and where, or what is wrong with it."""
    try:
        document = parse_document(Path("lab.yaml"), text)
    except LabFileError as error:
        return str(error)
    return repr((document.data, dict(document.line_by_location)))


@pytest.mark.slow
def test_a_text_is_read_alike_with_libyaml_and_without():
    lines = (
        (Path(__file__).parents[2] / "labs" / "testbed12.yaml").read_text(encoding="utf-8").splitlines(True)
    )
    ends = set()

    @settings(max_examples=100)
    @given(
        st.integers(0, len(lines) - 20),
        st.lists(
            st.tuples(st.integers(0, 400), st.integers(0, 8), st.sampled_from(["", *PIECES])), max_size=3
        ),
    )
    def compare(first, edits):
        text = "".join(lines[first : first + 20])
        for at, length, piece in edits:
            text = text[:at] + piece + text[at + length :]
        fast = read(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml, "CSafeLoader", yaml.SafeLoader)
            assert read(text) == fast
        ends.add(fast[:1])

    compare()
    assert ends == {"l", "("}  # some refused, at a line of lab.yaml, and some not


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["a: " + "[" * 30_000 + "]" * 30_000, "a: " + "- " * 60_000, "a: " + "{b: " * 30_000]
)
def test_a_file_that_is_nested_beyond_sense_is_refused(text):
    with pytest.raises(LabFileError, match="not YAML"):
        parse_lab(text, "x.yaml")
