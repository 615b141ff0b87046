"""Typer commands made from the command table: their parameters, and the callbacks that run them."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from lightbed.errors import LightbedError
from testbed.cli import completion
from testbed.cli.output import print_csv, print_json, report_error
from testbed.cli.remote import choose_server, is_for_service, run_on_service
from testbed.commands.context import DEFAULT_RUNS, CommandContext
from testbed.commands.declare import (
    REQUIRED,
    Command,
    Field,
    StreamCommand,
    TextConverter,
    carry_out,
    list_fields,
)
from testbed.commands.documents import EXIT_DONE, Document, TableDocument
from testbed.commands.table import COMMANDS, load_command
from testbed.errors import UsageError


def _choose_database(url: str) -> None:
    from testbed.storage.address import choose_database

    choose_database(url)


def _choose_lease(lease: str) -> None:
    from testbed.leases.choice import select_lease

    select_lease(lease)


_METAVAR_BY_NEED = {"lab": "LAB", "bare lab": "BARE", "labs if any": "[LAB]..."}
RUNS_DIR = Annotated[
    Path, typer.Option("--runs-dir", metavar="DIR", help="Folder for results.", envvar="LIGHTBED_RUNS")
]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
_SHARED_SETTINGS: Any = {"expose_value": False, "show_default": False}
DATABASE = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="LIGHTBED_DATABASE",
        callback=_choose_database,
        help="PostgreSQL server to use instead of the file in --runs-dir: postgresql+psycopg://USER@HOST/NAME.",
        **_SHARED_SETTINGS,
    ),
]
_LEASE = Annotated[
    str,
    typer.Option(
        "--lease",
        metavar="ID",
        envvar="LIGHTBED_LEASE",
        callback=_choose_lease,
        help="Lease under which to make the changes (see `testbed lease`).",
        **_SHARED_SETTINGS,
    ),
]
_SERVER = Annotated[
    str,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="LIGHTBED_SERVER",
        callback=choose_server,
        help="Run on this service, with the token in LIGHTBED_TOKEN (see `testbed serve`).",
        **_SHARED_SETTINGS,
    ),
]
"""Callbacks store the values of `DATABASE`, `_LEASE` and `_SERVER` in context variables, so no function passes them."""
_PASS_THROUGH_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command that passes words on to another program."""

DEFAULT_LAB = Path("labs/testbed12.yaml")
Callback = Callable[..., int]


def add_command(app: typer.Typer, name: str) -> None:
    """Add a command of the table, or a group with its commands.

    If the table declares a command with the group's own name, it runs when no command of the group is named.
    """
    command_type = load_command(name)
    command_names = [words.removeprefix(f"{name} ") for words in COMMANDS if words.startswith(f"{name} ")]
    if command_type is not None and not command_names:
        command_class = (
            _CommandWithProgram
            if any(field.option.follows_dashes for field in list_fields(command_type))
            else None
        )
        app.command(
            name,
            cls=command_class,
            help=_format_help(name, command_type),
            context_settings=_get_context_settings(command_type),
        )(make_callback(name, command_type))
        return
    command_by_name = {
        command_name: _load_declaration(f"{name} {command_name}") for command_name in command_names
    }
    group_fields = {
        field.name: field
        for group_command in command_by_name.values()
        for field in list_fields(group_command)
        if field.option.belongs_to_group
    }
    group = typer.Typer(help=COMMANDS[name][1], no_args_is_help=command_type is None and not group_fields)
    if group_fields:
        group.info.cls, group.info.epilog = (
            _OptionsAnywhere,
            command_by_name[command_names[0]].make_group_epilog(),
        )
        group.callback()(_make_storing_callback([_make_parameter(field) for field in group_fields.values()]))
    elif command_type is not None:
        group.callback(invoke_without_command=True)(_make_group_callback(make_callback(name, command_type)))
    for command_name, command in command_by_name.items():
        group.command(
            command_name,
            help=_format_help(f"{name} {command_name}", command),
            context_settings=_get_context_settings(command),
        )(make_callback(f"{name} {command_name}", command))
    app.add_typer(group, name=name)


def _load_declaration(name: str) -> type[Command[Any]]:
    command = load_command(name)
    assert command is not None, f"{name} is not declared"
    return command


def _get_context_settings(command: type[Command[Any]]) -> dict[str, bool] | None:
    """Return the settings of a command that passes words on to another program, or None for other commands."""
    passes_words_on = any(
        field.option.takes_rest and not field.option.follows_dashes for field in list_fields(command)
    )
    return _PASS_THROUGH_SETTINGS if passes_words_on else None


def _format_help(name: str, command_type: type[Command[Any]]) -> str:
    return f"{COMMANDS[name][1]}\n\n{command_type.details}".strip()


def make_callback(command_name: str, command_type: type[Command[Any]]) -> Callback:
    """Return a function with a parameter for each option, which runs the command and prints its document.

    The command runs on the service of `--server`, or in this process. A command with a field `every`, in seconds, is
    repeated until it is interrupted.
    """
    passed_on_names = [field.name for field in list_fields(command_type) if field.option.takes_rest]
    # Typer passes the defaults of these parameters although their `expose_value` is False.
    shared_names = {parameter.name for parameter in _make_shared_parameters(command_type)}

    def callback(**value_by_name: Any) -> int:
        value_by_name = {name: value for name, value in value_by_name.items() if name not in shared_names}
        if command_type.needs == "lab by option":
            value_by_name = _split_words(command_type, value_by_name)
        if "context" in value_by_name:
            context = value_by_name.pop("context")
            value_by_name |= (context.obj or {}) | dict.fromkeys(passed_on_names, context.args)
        as_json = value_by_name.pop("as_json", False)
        # A command that needs no lab may have its own option `lab_file`, which stays among its options.
        lab_file = (
            value_by_name.pop("lab_file", None) if command_type.needs not in ("nothing", "switch") else None
        )
        lab_files = tuple(value_by_name.pop("labs") or ()) if command_type.needs == "labs if any" else ()
        runs_dir, as_csv = value_by_name.pop("runs_dir", DEFAULT_RUNS), value_by_name.get("as_csv", False)
        if as_json and as_csv:
            raise typer.BadParameter("give --csv or --json, not both")
        tuple_field_names = {field.name for field in list_fields(command_type) if field.has_many_values}
        options = {
            name: tuple(value or ()) if name in tuple_field_names else value
            for name, value in value_by_name.items()
        }
        command = command_type(**options)

        def run_once() -> int:
            context = CommandContext(lab_file, runs_dir, is_quiet=as_json, lab_files=lab_files)
            if is_for_service(command, context):
                return run_on_service(command_name, command, context)
            context.is_quiet = as_json or as_csv
            if isinstance(command, StreamCommand):
                return _print_stream(command, context)
            document: Document = carry_out(command, context)
            if as_json:
                print_json(document.to_json(), context.stream)
            elif isinstance(document, TableDocument) and as_csv:
                print_csv(*document.to_table())
            return document.exit_code

        return _repeat(getattr(command, "every", None), run_once, as_json=as_json)

    vars(callback).update(
        declared=command_type, __signature__=inspect.Signature(list(_make_parameters(command_type)))
    )
    return callback


def _repeat(every_s: float | None, run_once: Callable[[], int], *, as_json: bool) -> int:
    """Call `run_once` and return its exit code. With `every_s`, repeat until interrupted, even after an error."""
    if every_s is None:
        return run_once()
    while True:
        start_s = time.monotonic()
        try:
            run_once()
        except LightbedError as error:  # for example a switch, host or service that is off for a while
            report_error(error, as_json=as_json)
        sys.stdout.flush()
        sleep(max(0.0, every_s - (time.monotonic() - start_s)))


def _print_stream(command: StreamCommand[Any], context: CommandContext) -> int:
    """Print each document when it arrives. Close the stream at the end, also after an error."""
    with closing(command.stream(context)) as documents:
        for document in documents:
            if context.is_quiet:
                print_json(document.to_json(), context.stream)
            else:
                context.say(document.format_line())
    return EXIT_DONE


def _make_group_callback(callback: Callback) -> Callback:
    """Return a callback that runs `callback` if no command of the group is named.

    Options before a named command are refused, because they belong after it.
    """

    def run_group(context: typer.Context, **values: Any) -> int:
        if context.invoked_subcommand is None:
            return callback(**values)
        for param in context.command.params:
            source = context.get_parameter_source(str(param.name))
            if source is not None and source.name == "COMMANDLINE":
                raise typer.BadParameter(
                    f"write options after the command: {context.command_path} {context.invoked_subcommand} ..."
                )
        return 0

    signature = inspect.signature(callback)
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *signature.parameters.values()]
    vars(run_group).update(vars(callback), __signature__=signature.replace(parameters=parameters))
    return run_group


class _CommandWithProgram(TyperCommand):
    """A command that passes on the words after `--` unchanged. Before `--` it accepts only its own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words before `--`. The words after it become `ctx.args`."""
        dashes_index = args.index("--") if "--" in args else len(args)
        super().parse_args(ctx, args[:dashes_index])
        ctx.args = args[dashes_index + 1 :]
        return list(ctx.args)


class _OptionsAnywhere(TyperGroup):
    """A group whose own options may also follow the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the options of the group to the front, and parse."""
        group_options = {name for option in self.params for name in option.opts if name.startswith("--")}
        group_words: list[str] = []
        other_words: list[str] = []
        remaining_words = iter(args)
        for word in remaining_words:
            if word == "--":  # everything after it is an argument
                other_words += [word, *remaining_words]
                break
            name, separator, _ = word.partition("=")
            if name in group_options - {"--help"}:
                group_words += [word] if separator else [word, *islice(remaining_words, 1)]
            else:
                other_words.append(word)
        return super().parse_args(ctx, [*group_words, *other_words])


def _make_storing_callback(parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Return a callback with these parameters that stores their values in the context for the command."""

    def store(context: typer.Context, **values: Any) -> None:
        context.obj = values

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    vars(store)["__signature__"] = inspect.Signature([context, *parameters])
    return store


def _make_parameters(command_type: type[Command[Any]]) -> Iterator[inspect.Parameter]:
    fields = [
        field
        for field in list_fields(command_type)
        if not (field.option.belongs_to_group or field.option.takes_rest)
    ]
    if len(fields) < len(list_fields(command_type)):
        yield _make_keyword_parameter("context", typer.Context, inspect.Parameter.empty)
    lab_parameters = list(_make_lab_parameter(command_type))
    arguments = [_make_parameter(field) for field in fields if field.option.is_argument]
    if command_type.needs == "lab by option":
        yield from _make_word_parameters(command_type)
    else:
        yield from (
            [*arguments, *lab_parameters] if command_type.is_lab_last else [*lab_parameters, *arguments]
        )
    yield from (_make_parameter(field) for field in fields if not field.option.is_argument)
    if command_type.has_runs_dir:
        yield _make_keyword_parameter("runs_dir", RUNS_DIR, DEFAULT_RUNS)
    if command_type.has_json:
        yield _make_keyword_parameter("as_json", AS_JSON, False)
    yield from _make_shared_parameters(command_type)


def _make_shared_parameters(command_type: type[Command[Any]]) -> Iterator[inspect.Parameter]:
    """Yield the options that go to context variables: `--database`, `--lease`, `--server`."""
    if command_type.has_runs_dir:
        yield _make_keyword_parameter("database", DATABASE, "")
    # A command that changes a lab or a switch may need a lease.
    if {"really_move", "yes"} & {field.name for field in list_fields(command_type)}:
        yield _make_keyword_parameter("lease", _LEASE, "")
    if command_type.role is not None:
        yield _make_keyword_parameter("server", _SERVER, "")


def _make_lab_parameter(command_type: type[Command[Any]]) -> Iterator[inspect.Parameter]:
    if command_type.needs in ("nothing", "switch"):
        return
    is_needed, has_many_values = (
        command_type.needs in ("lab", "bare lab"),
        command_type.needs == "labs if any",
    )
    argument = typer.Argument(
        metavar=_METAVAR_BY_NEED.get(command_type.needs, "[LAB]"),
        help=command_type.lab_help,
        autocompletion=completion.complete_lab_files,
    )
    if has_many_values:
        yield _make_keyword_parameter("labs", Annotated[list[Path] | None, argument], None)
        return
    annotation: Any = Path if is_needed else Path | None
    yield _make_keyword_parameter(
        "lab_file", Annotated[annotation, argument], inspect.Parameter.empty if is_needed else None
    )


def _make_word_parameters(command_type: type[Command[Any]]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command whose LAB is optional: all arguments as one list, and `--lab`."""
    metavars = " ".join(
        str(field.option.metavar) for field in list_fields(command_type) if field.option.is_argument
    )
    help_texts = [field.option.help for field in list_fields(command_type) if field.option.is_argument]
    description = "; ".join(
        ["Lab file, if not given by --lab", *(text[0].lower() + text[1:-1] for text in help_texts)]
    )
    words_argument = typer.Argument(
        metavar=f"[LAB] {metavars}", help=f"{description}.", autocompletion=completion.complete_lab_files
    )
    yield _make_keyword_parameter("context", typer.Context, inspect.Parameter.empty)
    yield _make_keyword_parameter("words", Annotated[list[str], words_argument], inspect.Parameter.empty)
    lab_option = typer.Option(
        "--lab",
        metavar="LAB",
        help="Lab file.",
        envvar="LIGHTBED_LAB",
        autocompletion=completion.complete_lab_files,
    )
    yield _make_keyword_parameter("lab_file", Annotated[Path, lab_option], DEFAULT_LAB)


def _split_words(command_type: type[Command[Any]], value_by_name: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the list of arguments split into LAB and the others.

    Raises `typer.BadParameter` for a wrong number of arguments, and for LAB given twice.
    """
    context, words, lab_file = value_by_name["context"], value_by_name["words"], value_by_name["lab_file"]
    names = [field.name for field in list_fields(command_type) if field.option.is_argument]
    if len(words) not in (len(names), len(names) + 1):
        metavars = " ".join(
            str(field.option.metavar) for field in list_fields(command_type) if field.option.is_argument
        )
        usage = f"write `{context.command_path} [LAB] {metavars}`"
        raise typer.BadParameter(f"{usage}; without LAB, --lab names the lab file")
    source = context.get_parameter_source("lab_file")
    lab_words = words[: -len(names)]
    if lab_words and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter(f"two lab files, {lab_words[0]} and --lab {lab_file}: remove one")
    other_values = {name: value for name, value in value_by_name.items() if name not in ("context", "words")}
    value_by_argument = dict(zip(names, words[-len(names) :], strict=True))
    return {**other_values, **value_by_argument, "lab_file": Path(lab_words[0]) if lab_words else lab_file}


def _make_parameter(field: Field) -> inspect.Parameter:
    option, is_number = field.option, field.value_type in (int, float)
    settings: dict[str, Any] = {
        "metavar": option.metavar,
        "help": option.help or None,
        "min": option.least if is_number else None,
        "max": option.most if is_number else None,
        "parser": _make_parser(option.text) if option.text else None,
        "autocompletion": getattr(completion, f"complete_{option.complete}") if option.complete else None,
        "show_default": option.show_default,
        "envvar": option.envvar or None,
        "exists": option.must_exist,
        "dir_okay": not option.must_exist,
    }
    parameter: Any = (
        typer.Argument(**settings) if option.is_argument else typer.Option(*field.option_names, **settings)
    )
    annotation: Any = list[field.value_type.__args__[0]] if field.has_many_values else field.value_type  # type: ignore[name-defined]
    default = inspect.Parameter.empty if field.default is REQUIRED else field.default
    if field.has_many_values and default == ():
        annotation, default = annotation | None, None
    elif field.is_optional:
        annotation = annotation | None
    return _make_keyword_parameter(field.name, Annotated[annotation, parameter], default)


def _make_parser(converter: TextConverter) -> Callable[[str], Any]:
    """Return the parser of an option. It raises `typer.BadParameter`; typer adds the option's name to the message."""

    def parse(value: str) -> Any:
        try:
            return converter.parse(value)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from error

    return parse


def _make_keyword_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
