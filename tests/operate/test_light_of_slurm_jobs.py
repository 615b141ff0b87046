"""Decisions of the scripts of examples/slurm, without Slurm: requests, leases, ports, statuses.

The grammar of requests stands twice, in Lua for sbatch and in Python for the prolog. Here the two are compared.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("sqlalchemy")

from testbed.design.topology.circulants import find_topology, parse_demands
from testbed.errors import UsageError

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"


def load_light():
    specification = importlib.util.spec_from_file_location("light_of_slurm", EXAMPLES / "light.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


light = load_light()

SLURM = """
slurm = {SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002, NO_VAL = 4294967294,
    log_user = function(form, ...) fault = form:format(...) end}
"""
SUBMIT = """
fault = nil
local job = {comment = COMMENT, min_nodes = NODES, max_nodes = NODES, shared = slurm.NO_VAL}
local code = slurm_job_submit(job, {}, 1000)
return ("%d|%d|%d|%s|%s"):format(code, job.min_nodes, job.shared, job.comment or "", fault or "")
"""
MODIFY = """
fault = nil
return tostring(slurm_job_modify({comment = COMMENT}, {comment = OLD, user_id = 1000, job_id = 7}, {}, WHO))
"""


class Lua:
    """The interpreter that slurmctld loads plugins into: liblua5.1, which slurmctld's package depends on."""

    def __init__(self):
        self._library = ctypes.CDLL("liblua5.1.so.0")
        for name in ("luaL_newstate", "lua_tolstring"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._state = ctypes.c_void_p(self._library.luaL_newstate())
        self._library.luaL_openlibs(self._state)

    def run(self, chunk: str, **values: str | int | None) -> str:
        """Return the text that a chunk returns; `values` are globals."""
        for name, value in values.items():
            if isinstance(value, str):
                data = value.encode()
                self._library.lua_pushlstring(self._state, data, ctypes.c_size_t(len(data)))
            elif value is None:
                self._library.lua_pushnil(self._state)
            else:
                self._library.lua_pushnumber(self._state, ctypes.c_double(value))
            self._library.lua_setfield(self._state, -10002, name.encode())  # LUA_GLOBALSINDEX
        assert self._library.luaL_loadstring(self._state, chunk.encode()) == 0, self._pop()
        assert self._library.lua_pcall(self._state, 0, 1, 0) == 0, self._pop()
        return self._pop()

    def _pop(self) -> str:
        text = ctypes.string_at(self._library.lua_tolstring(self._state, -1, None) or b"").decode()
        self._library.lua_settop(self._state, -2)
        return text


@pytest.fixture(scope="module")
def lua():
    """Provide the plugin in its interpreter."""
    try:
        lua = Lua()
    except OSError:
        pytest.skip("liblua5.1: installed by `make install-test`")
    lua.run(SLURM + (EXAMPLES / "job_submit.lua").read_text(encoding="utf-8"))
    return lua


def submit(lua, comment, nodes=4294967294):
    code, count, shared, now, fault = lua.run(SUBMIT, COMMENT=comment, NODES=nodes).split("|", 4)
    return SimpleNamespace(code=int(code), nodes=int(count), shared=int(shared), comment=now, fault=fault)


NUMBERS = st.integers(0, 12).map(str) | st.sampled_from(
    ["01", "9999", "10000", "+4", "4.0", "\u0664", "x", ""]
)
BYTES = st.sampled_from(
    ["64e6", "1", "64MiB", "0", "007", "1KiB", "3TiB", "1e", "1e123", "5MB", "-1", "", "2e06"]
)
WORDS = st.one_of(
    st.builds("nodes={}".format, NUMBERS),
    st.builds("demand={}:{}".format, NUMBERS, BYTES),
    st.text("nodesm=:4 \t", max_size=8),
)
VALID = st.builds(
    lambda groups, units, factor: [
        f"nodes={4 * factor}",
        *(f"demand={group}:{size}" for group, size in zip(groups, units, strict=False)),
    ],
    st.lists(st.sampled_from([2, 4]), max_size=2),
    st.lists(st.sampled_from(["64e6", "1", "64MiB", "3TiB"]), min_size=2, max_size=2),
    st.integers(1, 2499),
)
SEEN = {"valid": 0, "refused": 0}


@given(
    st.lists(WORDS, max_size=4) | VALID,
    st.sampled_from([" ", "  ", "\t"]),
    st.sampled_from(["", ";", "; waits for hosts"]),
)
@example(["nodes=4", "demand=4:64MiB", "demand=2:1e6"], " ", "")
@example(["nodes=4"], " ", "; nodes=9")
def test_sbatch_refuses_what_the_prolog_cannot_read_and_nothing_else(lua, words, space, status):
    comment = "testbed:" + space + space.join(words) + status
    job = submit(lua, comment)
    fault = ""
    try:
        request = light.parse_request(comment)
    except UsageError as error:
        fault = str(error)
    SEEN["refused" if fault else "valid"] += 1
    if fault:
        assert (job.code, job.comment) == (-1, comment)
        # Python and Lua quote words differently, and words may hold anything.
        assert fault in job.fault or " is unknown: " in job.fault
        return
    assert (job.code, job.nodes, job.shared, job.fault) == (0, request.nodes, 0, "")
    assert job.comment == light.write_status(comment, "waits for hosts")
    assert light.parse_request(job.comment) == request
    demands = parse_demands(request.demand)
    assert all(request.nodes % demand.group_size == 0 and demand.size_bytes > 0 for demand in demands)


def test_both_happened_often():
    assert min(SEEN.values()) >= 5, SEEN


@pytest.mark.parametrize("nodes", range(2, 13))
def test_every_request_that_is_valid_has_a_topology(nodes):
    for group in (group for group in range(2, nodes + 1) if nodes % group == 0):
        request = light.parse_request(f"testbed: nodes={nodes} demand={group}:64MiB")
        assert find_topology(nodes, 4, demands=parse_demands(request.demand)).nodes == nodes


@pytest.mark.parametrize("comment", [None, "", "my job", "about testbed: nodes=4", "Testbed: nodes=4"])
def test_other_jobs_are_left_alone(lua, comment):
    job = submit(lua, comment, nodes=3)
    assert (job.code, job.nodes, job.shared, job.comment) == (0, 3, 4294967294, comment or "")
    assert not light.is_for_light(comment or "")


def test_nodes_of_sbatch_agree_or_the_job_is_refused(lua):
    assert submit(lua, "testbed: nodes=4", nodes=4).code == 0
    assert "nodes=4 and --nodes differ" in submit(lua, "testbed: nodes=4", nodes=5).fault


@pytest.mark.parametrize(
    ("new", "old", "who", "code"),
    [
        ("mine", "testbed: nodes=4", 1000, "2002"),
        ("testbed: nodes=8", None, 1000, "2002"),
        ("mine", "yours", 1000, "0"),
        (None, "testbed: nodes=4", 1000, "0"),
        ("testbed: nodes=4; has light", "testbed: nodes=4", 0, "0"),
        ("testbed: nodes=4; has light", "testbed: nodes=4", 64030, "0"),
    ],
)
def test_the_owner_of_a_job_cannot_change_its_request(lua, new, old, who, code):
    assert lua.run(MODIFY, COMMENT=new, OLD=old, WHO=who) == code


@given(st.text(), st.text())
def test_a_status_never_changes_the_request(comment, status):
    written = light.write_status(comment, status)
    assert light.request_of(written) == light.request_of(comment)
    assert "\n" not in written.removeprefix(light.request_of(comment))


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("10:00", 20), ("00:30:00", 40), ("00:30:01", 41), ("1-02:00:00", 26 * 60 + 10), ("UNLIMITED", 43200)],
)
def test_a_lease_outlasts_its_job(limit, minutes):
    assert light.count_lease_minutes(limit) == minutes


def circuit(change, link, input_port, output_port):
    return SimpleNamespace(change=change, link=link, input_port=input_port, output_port=output_port)


def test_ports_of_idle_hosts_are_those_of_circuits_that_are_removed():
    circuits = [
        circuit("remove", "e/nic1 -> a/nic1", 17, 49),
        circuit("remove", "a/nic2 -> f/nic3", 2, 71),
        circuit("remove", "a/nic3 -> b/nic3", 3, 55),
        circuit("remove", "port 40 -> b/nic4", 40, 56),
        circuit("keep", "e/nic2 -> g/nic1", 18, 73),
        circuit("make", "a/nic1 -> b/nic1", 1, 53),
    ]
    plan = [SimpleNamespace(switch="ocs1", circuits=circuits)]
    assert light.find_foreign_ports(plan, ("a", "b")) == ("port:ocs1/17", "port:ocs1/40", "port:ocs1/71")


QUEUE = {
    "squeue --noheader --states=PD --format=%A|%r|%k": (
        "9|Resources|testbed: nodes=4; waits for hosts\n10|Priority|mine\n"
        "11|JobHeldAdmin|testbed: nodes=2; got no light: x\n12|Priority|testbed: nodes=2 demand=2:1e6"
    ),
    "squeue --noheader --jobs=9 --states=PD --format=%r|%k": "Resources|testbed: nodes=4; waits for hosts",
    "squeue --noheader --jobs=12 --states=PD --format=%r|%k": "Priority|testbed: nodes=2 demand=2:1e6; waits",
    "squeue --noheader --states=CF,R,CG,S --format=%A|%u|%N|%e": (
        "7|ann|a,b|2026-11-24T10:20:00\n8|bob|c|2026-11-24T09:00:00"
    ),
    "sinfo --noheader --states=idle --format=%D": "1",
}
IDLE = "is idle; job 8 of bob holds c until 2026-11-24T09:00:00"
EXPLAINED = {
    "9": f"testbed: nodes=4; waits for hosts: needs 4, 1 {IDLE}",
    "12": f"testbed: nodes=2 demand=2:1e6; waits for hosts: needs 2, 1 {IDLE}",
}


@pytest.fixture
def explain(monkeypatch):
    """Return a function that explains a queue with some other answers, and returns the comments."""

    def explain(**answers):
        comments = {}

        def ask(*command):
            known = QUEUE | {QUESTIONS[key]: answer for key, answer in answers.items()}
            answer = known.get(" ".join(command))
            if answer is None:
                raise light.SlurmError("`squeue` failed: slurm_load_jobs error: Invalid job id specified")
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(light, "ask_slurm", ask)
        monkeypatch.setattr(light, "set_comment", comments.__setitem__)
        light.explain_queue()
        return comments

    return explain


QUESTIONS = dict(zip(("pending", "nine", "twelve", "running", "idle"), QUEUE, strict=True))


def test_the_watch_explains_jobs_that_wait_for_hosts_and_no_others(explain):
    assert explain() == EXPLAINED


@pytest.mark.parametrize(
    "comment",
    [
        "a\nb",
        "a\n",
        "\n\n|",
        "x\n9|Priority|testbed: nodes=2; mine",
        "x\n99|Priority|testbed: nodes=2",
        "\u2028",
    ],
)
def test_a_comment_with_line_ends_neither_stops_the_watch_nor_changes_other_jobs(explain, comment):
    first = QUEUE[QUESTIONS["pending"]]
    assert explain(pending=f"13|Priority|{comment}\n{first}") == EXPLAINED
    assert explain(pending=f"{first}\n13|Priority|{comment}".strip()) == EXPLAINED


def test_a_request_with_line_ends_is_left_alone(explain):
    assert explain(nine="Resources|testbed: nodes=4\ndemand=4:1e6; waits") == {"12": EXPLAINED["12"]}


@pytest.mark.parametrize("now", ["", "JobHeldAdmin|testbed: nodes=4; got no light: x", None])
def test_a_job_that_no_longer_waits_keeps_its_comment(explain, now):
    assert explain(nine=now) == {"12": EXPLAINED["12"]}


def test_a_job_that_slurm_does_not_answer_for_is_logged_and_the_others_are_explained(explain, capsys):
    assert explain(nine=light.SlurmError("`squeue --noheader` did not run: busy")) == {"12": EXPLAINED["12"]}
    assert "job 9: its comment was not set: `squeue --noheader` did not run: busy" in capsys.readouterr().out


def test_rows_of_running_jobs_that_are_cut_are_skipped(explain):
    assert explain(running="7|ann\n8|bob|c|2026-11-24T09:00:00", idle="1\n1K") == EXPLAINED


@pytest.mark.parametrize("space", ["\n", "\t", "\r", "\x7f", "\x1b"])
def test_control_characters_of_a_request_are_refused(lua, space):
    fault = "characters include a line end, a tab or another control character: separate words by blanks"
    for comment in (f"testbed: nodes=4{space}demand=4:1e6", f"testbed: nodes=4{space}"):
        job = submit(lua, comment)
        assert (job.code, fault in job.fault) == (-1, True)
        with pytest.raises(UsageError, match=fault):
            light.parse_request(comment)


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "timeout_s", "fault"),
    [
        (("sh", "-c", "printf 'error:\\nnot now' >&2; exit 1"), 60, "`sh -c` failed: error: not now; see"),
        (("sh", "-c", "exit 3"), 60, "`sh -c` failed: exit code 3; see"),
        (("sleep", "60"), 0.05, "`sleep 60` did not run: .* timed out after 0.05 seconds; see"),
        (("no-such-command",), 60, "`no-such-command` did not run: "),
    ],
)
def test_a_command_of_slurm_that_fails_is_one_kind_of_error(monkeypatch, command, timeout_s, fault):
    monkeypatch.setattr(light, "SLURM_TIMEOUT_S", timeout_s)
    with pytest.raises(light.SlurmError, match=fault):
        light.ask_slurm(*command)


@pytest.mark.process
def test_a_comment_that_is_not_utf8_is_read():
    assert light.ask_slurm("printf", r"\377|a\n") == "\ufffd|a"


@pytest.fixture
def prolog(monkeypatch):
    """Return a function that runs a prolog without a lab; `answers` are those of Slurm, by the command's end."""
    asked = []

    def run(patience="0", **answers):
        def ask(*command):
            asked.append(" ".join(command))
            for name, answer in answers.items():
                if name in command or f"--format=%{name}" in command:
                    if isinstance(answer, Exception):
                        raise answer
                    return answer
            return "10:00"

        asked.clear()
        monkeypatch.setattr(light, "ask_slurm", ask)
        monkeypatch.setattr(light, "release_leases", lambda job: 0)
        monkeypatch.setattr(light, "bring_light", lambda job, request, deadline: "has light")
        values = {"ID": "5", "COMMENT": "testbed: nodes=2", "NODELIST": "a,b", "USER": "ann"}
        for name, value in values.items():
            monkeypatch.setenv(f"SLURM_JOB_{name}", value)
        monkeypatch.setenv("TESTBED_PATIENCE_S", patience)
        return light.acquire(), [
            one for one in asked if one.startswith(("scontrol update", "scontrol requeue"))
        ]

    return run


BUSY = light.SlurmError("`squeue --noheader` did not run: busy")
GONE = light.SlurmError("`squeue --noheader` failed: slurm_load_jobs error: Invalid job id specified")
WRITTEN = "scontrol update JobId=5 Comment=testbed: nodes=2; "


def test_a_prolog_says_why_it_got_no_light_whatever_slurm_answers(prolog, capsys):
    assert prolog(hostnames="a\nb") == (0, [f"{WRITTEN}has light"])
    assert prolog(hostnames=BUSY) == (1, [f"{WRITTEN}got no light within 0 s: {BUSY}"])
    assert prolog(l=BUSY, hostnames="a\nb") == (1, [f"{WRITTEN}got no light within 0 s: {BUSY}"])
    assert prolog(l=GONE, hostnames="a\nb") == (1, [])
    assert prolog(l="", hostnames="a\nb") == (1, [])
    assert prolog(A=BUSY, hostnames="a\nb") == (0, [])
    assert prolog(update=BUSY, hostnames="a\nb") == (0, [f"{WRITTEN}has light"])
    assert prolog(A="", hostnames="a\nb") == (1, [])
    assert "Traceback" not in capsys.readouterr().out


def test_a_job_that_cannot_be_held_keeps_its_status(prolog, capsys):
    code, changes = prolog(hostnames="a", requeuehold=light.SlurmError("`scontrol requeuehold` failed: no"))
    fault = "got no light: nodes=2, but Slurm chose 1 nodes"
    assert (code, changes) == (1, [WRITTEN + fault, "scontrol requeuehold 5"])
    assert "job 5: not held: `scontrol requeuehold` failed: no" in capsys.readouterr().out


@pytest.mark.parametrize("patience", ["ten minutes", "", "-1", "nan", "inf"])
def test_a_patience_that_is_not_a_number_of_seconds_holds_the_job(prolog, patience):
    fault = f"got no light: TESTBED_PATIENCE_S={patience} is not a number of seconds: correct light.env"
    assert prolog(patience) == (1, [WRITTEN + fault, "scontrol requeuehold 5"])
