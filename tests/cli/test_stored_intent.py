"""Stored intent on the command line: no option is repeated, and the epoch that is meant is said."""

from __future__ import annotations

import sqlite3

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.design.plans.file import Plan, write_plan
from testbed.design.topology.circulants import find_topology
from testbed.design.workloads.choice import WorkloadChoice
from testbed.design.workloads.sharding import Strategy, make_data_sharding


@pytest.fixture
def plan_file(tmp_path):
    """Provide a plan for the first six hosts."""
    topology, path = find_topology(6, 4), tmp_path / "job.json"
    strategy = Strategy((make_data_sharding(range(6)),), 1)
    plan = Plan(WorkloadChoice("job"), topology, 25.0, ("sum",), strategy, {"iteration_ms": 1.0})
    write_plan(plan, path)
    text = path.read_text().replace('"hosts": []', '"hosts": ["a", "b", "c", "d", "e", "f"]')
    path.write_text(text)
    return path


def test_nothing_needs_to_be_said_twice(testbed, lab_file):
    before = testbed("verify", lab_file, "--json").json
    assert (before["epoch"], before["stored_epoch"]) == (None, None)
    applied = testbed("apply", lab_file, "--simplex", "--json").json
    assert (applied["epoch"], applied["verified"]) == (1, True)
    for asked in (
        ["plan", lab_file],
        ["verify", lab_file],
        ["path", "a", "c", "--lab", lab_file],
        ["repair", lab_file],
        ["nccl", lab_file, "--sizes", "1KiB:1KiB"],
    ):
        ran = testbed(*asked, "--json")
        assert (ran.code, ran.json["epoch"], ran.json["lab_file_changed"]) == (0, 1, False), asked
    heading = testbed("verify", lab_file).out.splitlines()[0]
    assert "48 one-way links" in heading
    assert "; epoch 1 (verified, " in heading
    assert heading.endswith(" UTC): --simplex")


def test_only_a_plan_runs_as_a_job_and_its_links_are_counted_then(testbed, lab_file):
    assert testbed("apply", lab_file, "--simplex").code == 0
    ran = testbed("job", lab_file)
    assert ran.code == 1
    assert "a job needs a plan for at least two servers: apply one with `testbed apply" in ran.err
    assert testbed("verify", lab_file, "--json").json["links"] == []


def test_another_topology_is_named_and_said_in_the_heading(testbed, lab_file):
    assert testbed("apply", lab_file, "--simplex").code == 0
    other = testbed("verify", lab_file, "--method", "geometric")
    assert other.code == 2
    heading, told, *_ = other.out.splitlines()
    assert "; named: --method geometric; NOT WHAT IS STORED, epoch 1 (verified, " in heading
    assert "instead of a faulty fibre" in told
    document = testbed("verify", lab_file, "--method", "geometric", "--json").json
    assert (document["epoch"], document["stored_epoch"]) == (None, 1)
    hints = {finding["hint"] for finding in document["findings"]}
    assert hints == {"run `testbed apply --method geometric`"}  # the advice brings about what was compared
    same = testbed("verify", lab_file, "--simplex", "--json")
    assert (same.code, same.json["epoch"]) == (0, 1)


@pytest.mark.long
def test_a_bare_apply_installs_the_stored_topology_again_and_says_so(testbed, lab_file):
    first = testbed("apply", lab_file, "--json")
    assert (first.json["epoch"], first.json["notes"][0][:11]) == (1, "48 circuits"), (
        "nothing stored: the default"
    )
    assert testbed("apply", lab_file, "--simplex").code == 0
    again = testbed("apply", lab_file)
    said, planned, *_ = again.out.splitlines()
    assert again.code == 0
    assert said.startswith("installs epoch 2 (verified, ")
    assert "): --simplex again, since no topology is named; another one is named by --epoch, " in said
    assert planned == "48 circuits planned, nothing to change"
    assert "48 one-way links" in again.out
    verified = testbed("verify", lab_file, "--json").json
    assert (verified["epoch"], verified["ok"]) == (3, True)
    assert testbed("verify", lab_file, "--simplex", "--json").json["epoch"] == 3


@pytest.mark.long
def test_an_earlier_epoch_is_brought_back_by_its_number(testbed, lab_file):
    assert testbed("apply", lab_file, "--simplex").code == 0
    default = testbed("apply", lab_file, "--method", "geometric", "--json").json
    assert default["notes"][0].startswith("replaces epoch 1 (verified, ")
    assert default["notes"][0].endswith("; `testbed apply --epoch 1` brings it back")
    planned = testbed("plan", lab_file, "--epoch", 1)
    assert planned.code == 2
    findings = testbed("verify", lab_file, "--epoch", 1, "--json").json["findings"]
    assert {finding["hint"] for finding in findings} == {"run `testbed apply --epoch 1`"}
    assert planned.out.splitlines()[-1] == f"to patch it again: testbed apply {lab_file} --epoch 1"
    assert testbed("apply", lab_file, "--epoch", 1, "--json").json["epoch"] == 3
    assert testbed("verify", lab_file, "--simplex", "--json").json["epoch"] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epoch", 7], "has no epoch 7"),
        (["--epoch", 1, "--simplex"], "--epoch 1 already sets the topology: leave out --simplex, --method"),
    ],
)
def test_an_epoch_that_cannot_be_meant_is_refused(testbed, lab_file, options, words):
    assert testbed("apply", lab_file).code == 0
    ran = testbed("plan", lab_file, *options)
    assert ran.code == 1
    assert words in ran.err


def test_a_plan_is_stored_with_its_text_and_its_hosts(testbed, lab_file, plan_file):
    assert testbed("apply", lab_file).code == 0
    applied = testbed("apply", lab_file, "--plan", plan_file, "--take-over", "--json")
    assert (applied.code, applied.json["epoch"]) == (0, 2)
    plan_file.unlink()
    ran = testbed("verify", lab_file)
    assert ran.code == 0, ran.out
    assert "only a, b, c, d, e, f" in ran.out.splitlines()[0]
    assert testbed("repair", lab_file, "--json").json["epoch"] == 2


def change_newest_epoch(runs, **columns):
    """Write what the journal would hold after another ending of the newest apply."""
    with sqlite3.connect(runs / "lightbed.sqlite") as connection:
        for column, value in columns.items():
            newest = "epoch = (select max(epoch) from intents)"
            connection.execute(f"update intents set {column} = ? where {newest}", (value,))
    connection.close()


@pytest.mark.long
def test_an_apply_that_was_killed_before_its_routes_is_named_by_all_that_look(testbed, lab_file, runs):
    """The switches are as planned, and nothing is lost: only the journal knows that the hosts were not reached."""
    assert testbed("apply", lab_file).code == 0
    assert testbed("apply", lab_file, "--simplex").code == 0
    change_newest_epoch(runs, state="intended", owner="1 gone/0", applied_at=None)
    state = "; epoch 2 (unfinished: killed before circuits and routes stood, 20"
    unfinished = ": the apply of epoch 2, begun 20"
    for asked, nothing in ((["plan"], "nothing to do"), (["repair"], "no fibre is lost")):
        ran = testbed(*asked, lab_file)
        assert ran.code == 2
        assert state.removeprefix("; ") in ran.out.splitlines()[0]
        (line,) = (line for line in ran.out.splitlines() if line.startswith("unfinished: "))
        assert unfinished in line
        assert line.endswith(
            " was killed before circuits and routes stood; run `testbed resume`, or `testbed apply --epoch 2`"
        )
        assert nothing in ran.out
        document = testbed(*asked, lab_file, "--json").json
        assert [one["hint"] for one in document["unfinished"]] == [
            "run `testbed resume`, or `testbed apply --epoch 2`"
        ]
        assert document["epoch_state"] == "unfinished: killed before circuits and routes stood"
    verified = testbed("verify", lab_file)
    assert verified.code == 2
    assert state in verified.out.splitlines()[0]
    assert [line.split(":")[0] for line in verified.out.splitlines()[2:]] == [
        "unfinished",
        "    run `testbed resume`, or `testbed apply --epoch 2`",
    ]
    assert testbed("apply", lab_file).code == 0
    planned = testbed("plan", lab_file, "--json")
    assert (planned.code, planned.json["unfinished"], planned.json["epoch_state"]) == (0, [], "verified")


def test_an_epoch_whose_proof_failed_is_not_told_as_one_that_was_proved(testbed, lab_file, runs):
    assert testbed("apply", lab_file).code == 0
    change_newest_epoch(runs, state="failed", error="3 findings")
    for asked, code in (("plan", 0), ("verify", 0)):
        ran = testbed(asked, lab_file)
        assert ran.code == code
        assert "; epoch 1 (failed: its proof ended with 3 findings, 20" in ran.out.splitlines()[0]


def test_a_lab_file_that_changed_is_said(testbed, lab_file, tmp_path):
    mine = tmp_path / "lab.yaml"
    mine.write_text(lab_file.read_text())
    assert testbed("apply", mine).code == 0
    mine.write_text(mine.read_text().replace("transmit_power_dbm: 0.0", "transmit_power_dbm: 0.5"))
    ran = testbed("verify", mine)
    assert ran.code == 0
    assert ran.out.splitlines()[1].startswith(
        f"lab file {mine} has changed since epoch 1 was applied (revision "
    )
    assert ran.out.splitlines()[1].endswith("; see `testbed plan`, then `testbed apply --epoch 1`")
    assert testbed("verify", mine, "--json").json["lab_file_changed"] is True
    other = mine.rename(tmp_path / "other.yaml")
    assert f"{other} is not {mine}, with which epoch 1 was applied" in testbed("verify", other).out


def test_looking_makes_no_directory_of_runs(testbed, lab_file, runs):
    for asked in (["plan"], ["verify"], ["path", "a", "b", "--lab"], ["repair"]):
        ran = testbed(*asked, lab_file)
        assert ran.code in (0, 2), ran.err
        assert f"no topology of lab 'testbed12' is stored in {runs}: the default one is used" in ran.out
    assert not runs.exists()


def test_a_store_that_cannot_be_read_needs_a_name(testbed, lab_file, runs):
    runs.mkdir()
    (runs / "lightbed.sqlite").write_bytes(b"no database, and long enough to be looked at\n" * 40)
    refused = testbed("verify", lab_file)
    assert (refused.code, refused.out) == (1, "")
    assert "cannot read the stored topology" in refused.err
    named = testbed("plan", lab_file, "--method", "geometric")
    assert named.code in (0, 2)
    assert "cannot be read" in named.out


def test_jobs_on_separate_hosts_keep_their_circuits(testbed, lab_file):
    assert testbed("apply", lab_file, "--hosts-of", "a,b,c,d", "--demand", "4:64e6").code == 0
    one = testbed("plan", lab_file, "--epoch", 1, "--json").json
    two = testbed("apply", lab_file, "--hosts-of", "h,g,f", "--json").json
    assert (two["epoch"], two["circuits"], two["verified"]) == (2, 12, True)
    again = testbed("plan", lab_file, "--epoch", 1, "--json").json
    assert (len(one["links"]), again["links"], again["has_changes"]) == (8, one["links"], False)
    (switch,) = testbed("plan", lab_file, "--epoch", 2, "--json").json["switches"]
    assert {circuit["link"].split("/")[0] for circuit in switch["circuits"]} == {"f", "g", "h"}
    refused = testbed("apply", lab_file, "--hosts-of", "d,e", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "ocs.port.busy")
    assert testbed("apply", lab_file, "--hosts-of", "d,e", "--take-over").code == 0


def test_hosts_alone_mean_the_topology_in_force_on_exactly_these(testbed, lab_file):
    assert testbed("apply", lab_file, "--hosts-of", "a,b,c,d", "--simplex").code == 0
    assert testbed("apply", lab_file, "--hosts-of", "e,f").code == 0
    for hosts in ("a,b,c,d", "d,c,b,a"):
        proof = testbed("verify", lab_file, "--hosts-of", hosts, "--json")
        assert (proof.code, proof.json["epoch"], proof.json["stored_epoch"]) == (0, 1, 1)
    part = testbed("verify", lab_file, "--hosts-of", "a,b,c", "--json").json
    assert (part["epoch"], part["stored_epoch"]) == (None, 1)
    dark = testbed("plan", lab_file, "--hosts-of", "g,h")
    assert "no topology of hosts g, h of lab " in dark.out
    again = testbed("apply", lab_file, "--hosts-of", "a,b,c,d", "--json").json
    assert (again["epoch"], again["changed"]) == (3, False)
    assert "--hosts-of a,b,c,d again, since no topology is named" in again["notes"][0]
    assert testbed("verify", lab_file).out.splitlines()[0].endswith(" UTC): --simplex --hosts-of a,b,c,d")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hosts-of", "a,z"], "no host 'z'"),
        (["--hosts-of", "a,a"], "name each host of the job once"),
        (["--hosts-of", "a"], "a topology needs at least 2"),
        (["--hosts-of", "a,b", "--epoch", 1], "--epoch 1 already sets the topology"),
        (["--hosts-of", "a,b", "--plan", "job.json"], "--plan job.json already sets the topology"),
    ],
)
def test_hosts_that_cannot_be_meant_are_refused(testbed, lab_file, options, words):
    refused = testbed("apply", lab_file, *options)
    assert (refused.code, words in refused.err) == (1, True), refused.err
