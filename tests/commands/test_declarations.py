"""Declarations of commands: what is said once appears on every face."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import pytest

from testbed.commands.context import CommandContext
from testbed.commands.declare import (
    Command,
    TextConverter,
    argument,
    carry_out,
    input_file_option,
    list_document_types,
    list_fields,
    option,
    output_file_option,
)
from testbed.commands.documents import (
    EXIT_CHANGES,
    OMIT_NONE,
    Document,
    UnfinishedOperation,
    make_key_metadata,
)
from testbed.commands.groups import INTERVAL_CONVERTER, MovingCommand, parse_interval
from testbed.commands.table import list_declared_commands
from testbed.errors import UsageError

DECLARED = dict(list_declared_commands())


@dataclass(frozen=True, kw_only=True)
class Count(Document):
    """A count of things."""

    number: int
    source: str = field(metadata=make_key_metadata("from"))
    notes: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    unfinished: tuple[UnfinishedOperation, ...] = ()

    @property
    def exit_code(self):
        return EXIT_CHANGES if self.number else 0


@dataclass(frozen=True, kw_only=True)
class CountThings(MovingCommand, Command[Count]):
    """A command of this test."""

    role = "developer"
    variants: ClassVar = {"deep": "moving"}
    kind: Annotated[str, argument("Which things.", "KIND")]
    last: Annotated[int | None, option("Only the last N.", metavar="N", least=1, most=9)] = None
    within: Annotated[float | None, option("In this time.", metavar="TIME", text=INTERVAL_CONVERTER)] = None
    plan: Annotated[Path | None, input_file_option("Things as planned.")] = None
    out: Annotated[Path | None, output_file_option("things.json", "Write them here.")] = None
    every: Annotated[float | None, option("Go on.", text=INTERVAL_CONVERTER, is_local=True)] = None
    deep: Annotated[bool, option("Look below.")] = False
    depth: Annotated[int, option("So far.", least=1, only_with="deep")] = 1

    def run(self, context: CommandContext) -> Count:
        """Count them."""
        context.say(f"{self.kind}: 2")
        return Count(number=2, source=self.kind)


@pytest.fixture
def table(monkeypatch):
    """Add a command to the table."""
    from testbed.commands import table

    table.load_command.cache_clear()
    monkeypatch.setitem(table.COMMANDS, "count", ("lab.history:CountThings", "Count things."))
    monkeypatch.setattr("testbed.commands.lab.history.CountThings", CountThings, raising=False)
    yield
    table.load_command.cache_clear()


@pytest.mark.parametrize("words", DECLARED)
def test_a_document_and_its_records_have_types_and_a_sentence(words):
    pytest.importorskip("pydantic")
    from pydantic import TypeAdapter

    for document in list_document_types(DECLARED[words]):
        assert issubclass(document, Document)
        schema = TypeAdapter(document).json_schema()
        for record in (schema, *schema.get("$defs", {}).values()):
            assert record["description"][0].isupper(), record["title"]
            untyped = [
                name for name, value in record["properties"].items() if set(value) <= {"title", "default"}
            ]
            assert untyped == [], record["title"]


@pytest.mark.parametrize("words", DECLARED)
def test_an_option_has_a_sentence(words):
    for each in list_fields(DECLARED[words]):
        assert each.option.takes_rest or len(each.option.help) > 5, each.name


def test_an_option_is_on_the_command_line(table, capsys):
    from testbed.cli.app import run_app

    assert (
        run_app(["count", "labs/testbed12.yaml", "circuits", "--last", "3", "--within", "5m"]) == EXIT_CHANGES
    )
    assert capsys.readouterr().out == "circuits: 2\n"
    assert run_app(["count", "labs/testbed12.yaml", "circuits", "--json"]) == EXIT_CHANGES
    assert json.loads(capsys.readouterr().out) == {"number": 2, "from": "circuits", "unfinished": []}


def test_a_value_out_of_bounds_names_its_option(table, capsys):
    from testbed.cli.app import run_app

    for words in (["--last", "10"], ["--within", "soon"], ["--depth", "0"]):
        assert run_app(["count", "labs/testbed12.yaml", "circuits", *words]) == 1
        assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize("text", ["hosts\nlease of root", "hosts\x1b[2J", "\x85"])
def test_a_text_that_would_break_a_listing_is_refused(text):
    with pytest.raises(
        UsageError, match="--reason contains a line break or another control character: remove it"
    ):
        DECLARED["lease request"](reason=text)
    with pytest.raises(
        UsageError, match="--reason contains a line break or another control character: remove it"
    ):
        DECLARED["lease break"](lease="1", reason=text)
    DECLARED["runs query"](statement="select 1\n  from runs")


def test_an_option_is_in_the_request_of_its_variant(table):
    pytest.importorskip("pydantic")
    from testbed.service.requests import make_model

    plain, deep = (make_model("count", CountThings, variant) for variant in ("", "deep"))
    shared = {
        "lab",
        "why",
        "text",
        "command",
        "kind",
        "last",
        "within",
        "plan",
        "out",
        "lease",
        "really_move",
    }
    assert set(plain.model_fields) == shared
    assert set(deep.model_fields) == shared | {"depth"}
    assert (plain.lane, deep.lane, plain.role) == ("moving", "moving", "developer")
    assert plain.model_json_schema()["properties"]["last"]["anyOf"][0] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
    }
    assert plain.model_json_schema()["properties"]["plan"]["anyOf"][0] == {"type": "string"}


def test_a_request_becomes_the_words_of_the_command(table, tmp_path):
    pytest.importorskip("pydantic")
    from testbed.service.requests import make_model

    request = make_model("count", CountThings, "")(
        lab="lab1", command="count", kind="hosts", last=3, within="5m", plan="{}", out=True
    )
    words = request.make_arguments({"lab1": Path("lab1.yaml")}, Path("runs"), tmp_path)
    assert words == [
        "count",
        "--last=3",
        "--within=5m",
        f"--plan={tmp_path}/plan.json",
        f"--out={tmp_path}/things.json",
        "--runs-dir=runs",
        "--json",
        "--",
        "lab1.yaml",
        "hosts",
    ]
    assert (tmp_path / "plan.json").read_text() == "{}"


def test_a_port_that_looks_like_an_option_is_a_port(monkeypatch):
    pytest.importorskip("pydantic")
    from testbed.cli import app, parameters
    from testbed.service.requests import find_model

    request = find_model("switch power").model_validate(
        {
            "command": "switch power",
            "lab": "lab1",
            "switch": "ocs1",
            "named": ["--record=/stolen", "--timeout=9"],
        }
    )
    monkeypatch.setattr(type(request), "list_command_words", lambda *_: ["switch", "sim://x", "power"])
    seen = []
    monkeypatch.setattr(
        parameters, "carry_out", lambda command, _place: seen.append(command) or Count(number=0, source="")
    )
    assert app.run_app(request.make_arguments({}, Path("runs"), Path("folder"))) == 0
    (command,) = seen
    assert (command.named, command.record, command.timeout_s) == (
        ("--record=/stolen", "--timeout=9"),
        None,
        None,
    )


def test_null_is_the_default_and_no_unknown_field():
    pydantic = pytest.importorskip("pydantic")
    from testbed.service.requests import find_model

    body = {"command": "job", "lab": "lab1"}
    assert find_model("job").model_validate(body | {"iterations": None}) == find_model("job").model_validate(
        body
    )
    with pytest.raises(pydantic.ValidationError):
        find_model("job").model_validate(body | {"iteration": None})


def test_a_path_that_a_request_would_name_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class Steals(Command[Count]):
        place: Annotated[Path, option("Where.")]

        def run(self, context: CommandContext) -> Count:
            raise NotImplementedError

    with pytest.raises(
        TypeError, match=r"Steals\.place is a path: declare whether it is read, written or local"
    ):
        list_fields(Steals)


def test_lines_go_to_standard_error_where_the_file_goes_to_standard_output(capsys):
    document = carry_out(CountThings(kind="hosts", out=Path("-")), CommandContext(is_quiet=False))

    captured = capsys.readouterr()
    assert (captured.out, captured.err, document.exit_code) == ("", "hosts: 2\n", EXIT_CHANGES)


@pytest.mark.parametrize("text", ["", "5", "m", "0s", "-1s", "5 m", "1e3s"])
def test_what_is_not_an_interval_is_refused(text):
    with pytest.raises(UsageError, match="is not an interval"):
        parse_interval(text)


def test_an_interval_is_read_as_it_was_written():
    assert [
        INTERVAL_CONVERTER.parse(INTERVAL_CONVERTER.write(seconds)) for seconds in (1.0, 90.0, 3600.0)
    ] == [
        1.0,
        90.0,
        3600.0,
    ]
    assert isinstance(INTERVAL_CONVERTER, TextConverter)
