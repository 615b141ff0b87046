"""Nothing that somebody writes ends in a traceback: a text is a datapath, or is refused with a place and a reason."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from libraries import skip_without

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")
skip_without("typer", reason="typer is the command line: pip install 'lightbed[fpga]'")

from fpga.cli import run_app
from fpga.cli.check import describe_check, describe_errors
from fpga.count_action import CountActionError, check, datapath_from_json, load, parse_text
from fpga.count_action.language.unparse import unparse

KEYS = {"file", "line", "column", "message", "hint"}


def fuzz(number, seed, *, examples, mutations, small_datapaths, folder, capsys):
    """Read so many texts; count those that were mutations, accepted, and refused for which reason."""
    valid = [path.read_text() for path in sorted(examples.glob("*.ca"))]
    valid += [
        text for text in map(unparse, map(small_datapaths.random_datapath, range(40))) if len(text) < 700
    ]
    (folder / "averager.ca").write_text((examples / "averager.ca").read_text())
    file = folder / "fuzz.ca"
    seen: Counter[str] = Counter()
    for place, (mutated, text) in enumerate(mutations.fuzzed(valid, number, seed)):
        seen["mutations"] += mutated
        file.write_bytes(text.encode("utf-8", errors="surrogatepass"))
        try:
            checked = load(file)
            document = json.loads(json.dumps(describe_check(checked)))
        except CountActionError as error:
            document = json.loads(json.dumps(describe_errors(error)))
        assert document["ok"] is (not document["errors"])
        assert all(each.keys() == KEYS and each["message"] for each in document["errors"])
        assert all(each["line"] >= 1 and each["column"] >= 1 for each in document["errors"])
        seen["accepted" if document["ok"] else "refused"] += 1
        if document["errors"]:
            seen["refused after parsing"] += not document["errors"][0]["message"].startswith("unexpected ")
        else:
            datapath = checked.datapath
            assert datapath_from_json(datapath.to_json()) == datapath
        if place % 100 == 0:
            assert run_app(["check", str(file), "--json"]) == (0 if document["ok"] else 1)
            assert json.loads(capsys.readouterr().out) == document
    return seen


def assert_floors(seen, number):
    assert seen["accepted"] + seen["refused"] == number
    assert seen["mutations"] >= 0.6 * number
    assert seen["accepted"] >= 0.05 * number
    assert seen["refused after parsing"] >= 0.1 * number


@pytest.mark.slow
def test_four_hundred_texts(examples, mutations, small_datapaths, tmp_path, capsys):
    given = {"examples": examples, "mutations": mutations, "small_datapaths": small_datapaths}
    assert_floors(fuzz(400, 4, **given, folder=tmp_path, capsys=capsys), 400)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thirty_thousand_texts(examples, mutations, small_datapaths, tmp_path, capsys):
    given = {"examples": examples, "mutations": mutations, "small_datapaths": small_datapaths}
    assert_floors(fuzz(30_000, 44, **given, folder=tmp_path, capsys=capsys), 30_000)


@pytest.mark.slow
@pytest.mark.parametrize("modules", [1, 10, 50])
def test_datapaths_for_co_simulation_are_what_their_text_says(random_datapaths, modules):
    for seed in range(2):
        datapath = random_datapaths.random_datapath(seed, modules=modules)
        assert check(datapath) == ()
        assert parse_text(unparse(datapath), f"{datapath.name}.ca").datapath == datapath


@pytest.mark.long
def test_random_datapaths_are_what_their_text_says(small_datapaths):
    seen: Counter[str] = Counter()
    for seed in range(60):
        datapath = small_datapaths.random_datapath(seed)
        assert check(datapath) == ()
        read = parse_text(unparse(datapath), f"{datapath.name}.ca").datapath
        assert read == datapath
        assert read.digest == datapath.digest
        assert unparse(read) == unparse(datapath)
        seen.update(action.kind.value for module in datapath.modules for action in module.actions)
        seen["gates"] += sum(len(count.gate) for _, count in datapath.list_counts())
        seen["own targets"] += sum(
            len(module.targets) not in {1, len(module.counts)} for module in datapath.modules
        )
    kinds = ("stream", "emit", "pulse", "set", "clear flag", "clear count", "advance", "gates", "own targets")
    assert all(seen[kind] >= 12 for kind in kinds), seen
