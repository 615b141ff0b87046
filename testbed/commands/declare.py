"""Declarations of commands: their options, the lab that they need, the role that may request them, their document.

A command is a frozen dataclass. Each field is an option, whose annotation tells the command line and the service all
that they need:

    @dataclass(frozen=True, kw_only=True)
    class Journal(Command[JournalDocument]):
        lane = "reading"
        role = "viewer"
        operation: Annotated[str | None, argument("Only this operation.", "[OPERATION]")] = None
        last: Annotated[int | None, option("Only the newest N operations.", metavar="N", least=1)] = None

        def run(self, context: CommandContext) -> JournalDocument: ...

A field with a path declares whether the command reads or writes the file, or whether the option is only local. A
service never opens a path that a request names.
"""

from __future__ import annotations

import dataclasses
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from lightbed.output_file import STANDARD_OUTPUT
from testbed.commands.documents import Document
from testbed.errors import UsageError

if TYPE_CHECKING:
    from testbed.commands.context import CommandContext

Needs = Literal[
    "lab", "lab if any", "labs if any", "bare lab", "switch", "lab by option", "lab unless local", "nothing"
]
"""What a command needs before it runs.

- `lab by option`: the option `--lab` may name the lab file instead of the argument LAB.
- `lab unless local`: on the command line, a local option can replace LAB. A request to a service must name a lab.
- `bare lab`: the lab file may omit the ports of its NICs.
"""
Lane = Literal["moving", "looking", "reading", "prompt", "waiting"]
"""Queues of a service's runs.

- `moving`: runs that change the lab or load its links
- `looking`: runs that read its devices
- `reading`: runs that read the database
- `prompt`: urgent runs
- `waiting`: runs that may wait long
"""
Role = Literal["viewer", "operator", "developer", "admin"]
D_co = TypeVar("D_co", bound=Document, covariant=True)
REQUIRED: Any = dataclasses.MISSING
"""Default of a required option."""


@dataclass(frozen=True)
class TextConverter:
    """Conversion of an option's value from and to text. In a request, the text must match the regular expression."""

    parse: Callable[[str], Any]
    write: Callable[[Any], str]
    pattern: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option or a positional argument of a command, for the command line and the service.

    - `names`: its names on the command line. The default is made from the field's name.
    - `least`, `most`: bounds of a number, or of the length of a text in a request.
    - `has_lines`: a text in a request may have several lines.
    - `is_one_line`: control characters are refused, because listings show the text.
    - `must_exist`: a missing file is refused before the command runs.
    - `complete`: its values are completed by `testbed.cli.completion`: `ports` by the function `complete_ports`.
    - `reads`: it names a file to read. A request contains the text of the file.
    - `writes`: it names a file that the command writes. The value is the file's name among the files of a run.
    - `new_unless`: the file to write must not exist, unless the flag with this name is set.
    - `is_local`: requests do not contain it, and `--server` refuses it.
    - `for_caller`: with `--server`, the client handles this local option instead of refusing it.
    - `only_with`: only requests for this variant contain it.
    - `belongs_to_group`: it precedes the command's name, and all commands of the group have it.
    - `takes_rest`: it takes all words that are not options of the command.
    - `follows_dashes`: it takes all words after `--`.
    """

    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    text: TextConverter | None = None
    complete: str = ""
    show_default: bool = True
    envvar: str = ""
    is_argument: bool = False
    reads: bool = False
    writes: str = ""
    new_unless: str = ""
    is_local: bool = False
    for_caller: bool = False
    belongs_to_group: bool = False
    must_exist: bool = False
    takes_rest: bool = False
    follows_dashes: bool = False
    has_lines: bool = False
    is_one_line: bool = False
    only_with: str = ""


def option(sentence: str, /, *names: str, **settings: Any) -> Option:
    """Return an option with these names, by default `--field-name`."""
    return Option(help=sentence, names=names, **settings)


def argument(sentence: str, /, metavar: str, **settings: Any) -> Option:
    """Return a positional argument."""
    return Option(help=sentence, metavar=metavar, is_argument=True, **settings)


def input_file_option(sentence: str, /, *names: str, **settings: Any) -> Option:
    """Return an option that names a file to read."""
    return Option(help=sentence, names=names, metavar="FILE", reads=True, **settings)


def output_file_option(file_name: str, sentence: str, /, *names: str, **settings: Any) -> Option:
    """Return an option that names a file to write, called `file_name` among the files of a service's run."""
    return Option(help=sentence, names=names, writes=file_name, **({"metavar": "FILE"} | settings))


@dataclass(frozen=True)
class Field:
    """A field of a command: its name, its type without `None`, its default and its option."""

    name: str
    value_type: Any
    default: Any
    option: Option
    is_optional: bool
    """Whether None is a valid value."""

    @property
    def has_many_values(self) -> bool:
        """True if the option takes several values."""
        return get_origin(self.value_type) is tuple

    @property
    def option_names(self) -> tuple[str, ...]:
        """Names of the option on the command line."""
        return self.option.names or (f"--{self.name.replace('_', '-')}",)


@dataclass(frozen=True, kw_only=True)
class Command(ABC, Generic[D_co]):
    """A command. The fields of a subclass are its options.

    - `details`: text that follows the first sentence of its help.
    - `needs`: whether LAB is an argument. A command that needs a switch has a field `address`. A request has no such
      field: it names a switch of its lab.
    - `lab_help`: help of LAB. `is_lab_last`: LAB is the last argument instead of the first.
    - `has_json`: False for a command that starts another program, whose output is not a document.
    - `lane`: the queue of its runs in the service.
    - `role`: lowest role that may request it, with a token of scope `needs_scope`. None if it runs only locally.
    - `readers`: lowest role that may read its result.
    - `variants`: flags that make another kind of request, each with its lane.
    - `has_service_route`: the service executes it in the handler of a route, and not as a run.
    - `is_repeatable`: False if a service must not start it again after it was killed.
    """

    details: ClassVar[str] = ""
    needs: ClassVar[Needs] = "lab"
    lab_help: ClassVar[str] = "Lab file (YAML), e.g. labs/testbed12.yaml."
    has_runs_dir: ClassVar[bool] = True
    has_json: ClassVar[bool] = True
    lane: ClassVar[Lane] = "looking"
    role: ClassVar[Role | None] = "operator"
    needs_scope: ClassVar[str] = "runs:write"
    readers: ClassVar[Role] = "viewer"
    is_lab_last: ClassVar[bool] = False
    variants: ClassVar[Mapping[str, Lane]] = {}
    has_service_route: ClassVar[bool] = False
    is_repeatable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field in list_fields(type(self)):
            if field.option.is_one_line and _has_control_characters(getattr(self, field.name)):
                raise UsageError(
                    f"{field.option_names[0]} contains a line break or another control character: remove it"
                )
        self.validate()

    def validate(self) -> None:
        """Raise an error of `testbed.errors` for options that exclude each other."""

    def list_files_to_write(self) -> dict[str, Path]:
        """Return the paths of the files that the command writes, by name among the files of a run."""
        fields = [field for field in list_fields(type(self)) if field.option.writes]
        return {field.option.writes: path for field in fields if (path := getattr(self, field.name))}

    def list_default_files(self) -> dict[str, Path]:
        """Return paths for the files that a service always writes for this command, by name of the file."""
        return {}

    @classmethod
    def make_group_epilog(cls) -> str:
        """Return the text that ends the help of the command's group."""
        return ""

    @abstractmethod
    def run(self, context: CommandContext) -> D_co:
        """Execute the command, print its lines through `context`, and return the document."""


def _has_control_characters(text: str) -> bool:
    """Return whether a text contains characters that would break a line of a listing or log."""
    return any(unicodedata.category(character) == "Cc" for character in text)


class StreamCommand(Command[D_co]):
    """A command that yields a document for each event. It is printed as `format_line()`, or as one line of JSON."""

    @abstractmethod
    def stream(self, context: CommandContext) -> Generator[D_co, None, None]:
        """Yield a document for each event. Closing the generator ends the session with the device."""

    def run(self, context: CommandContext) -> D_co:
        """Raise `NotImplementedError`, because a stream has more than one document."""
        raise NotImplementedError


@cache
def list_fields(command: type[Command[Any]]) -> tuple[Field, ...]:
    """Return the fields of a command in the order of their declaration.

    Raises `TypeError` for a field without an option, and for a path that is not declared as read, written or local.
    With an undeclared path, a request could name any file of the service's machine.
    """
    hints = get_type_hints(command, include_extras=True)
    fields = []
    for declared_field in dataclasses.fields(command):
        annotation = hints[declared_field.name]
        options = [
            metadata for metadata in getattr(annotation, "__metadata__", ()) if isinstance(metadata, Option)
        ]
        if get_origin(annotation) is not Annotated or len(options) != 1:
            raise TypeError(f"{command.__name__}.{declared_field.name} has no option")
        value_type = annotation.__origin__
        is_optional = get_origin(value_type) is UnionType and NoneType in get_args(value_type)
        if is_optional:
            (value_type,) = [
                argument_type for argument_type in get_args(value_type) if argument_type is not NoneType
            ]
        if Path in (value_type, *get_args(value_type)) and not (
            options[0].reads or options[0].writes or options[0].is_local
        ):
            raise TypeError(
                f"{command.__name__}.{declared_field.name} is a path: declare whether it is read, written or local"
            )
        fields.append(Field(declared_field.name, value_type, declared_field.default, options[0], is_optional))
    return tuple(fields)


@cache
def list_document_types(command: type[Command[Any]]) -> tuple[type[Document], ...]:
    """Return the types of documents that a command may return, or the type that it streams."""
    if issubclass(command, StreamCommand):
        return (get_args(get_type_hints(command.stream)["return"])[0],)
    return_type = get_type_hints(command.run)["return"]
    return get_args(return_type) if isinstance(return_type, UnionType) else (return_type,)


def carry_out(command: Command[D_co], context: CommandContext) -> D_co:
    """Run a command and return its document. Raises the command's errors.

    If the command writes a file to standard output, its lines for people go to standard error.
    """
    if STANDARD_OUTPUT in map(str, command.list_files_to_write().values()):
        context.stream = sys.stderr
    return command.run(context)
