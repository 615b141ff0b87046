"""Declarations of commands: options, needs, who may ask a service for it, and the document.

A command is a frozen dataclass. Each field is an option, its annotation says all that a face needs to know:

    @dataclass(frozen=True, kw_only=True)
    class Journal(Command[JournalDocument]):
        lane = "reading"
        role = "viewer"
        operation: Annotated[str | None, argument("Only this operation.", "[OPERATION]")] = None
        last: Annotated[int | None, option("Only the newest N operations.", metavar="N", least=1)] = None

        def run(self, at: Place) -> JournalDocument: ...

A field that reads a file, writes one or works only on the user's own machine says so: a service never opens a path
that a request names.
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
    from testbed.commands.place import Place

Needs = Literal[
    "lab", "lab if any", "labs if any", "bare lab", "switch", "lab by option", "lab unless local", "nothing"
]
"""A lab `by option` may be named by `--lab`, too; one `unless local` may be left out where a local option says what to
do instead: a service needs it. NICs of a `bare` one need no ports."""
Lane = Literal["moving", "looking", "reading", "prompt", "waiting"]
"""Runs that move the lab or load its links, look at its devices, read what is stored, are urgent, or may wait."""
Role = Literal["viewer", "operator", "developer", "admin"]
D_co = TypeVar("D_co", bound=Document, covariant=True)
REQUIRED: Any = dataclasses.MISSING
"""Default of an option that must be given."""


@dataclass(frozen=True)
class Text:
    """A value that is written as text: how to read it, how a request writes it, and the pattern of such texts."""

    parse: Callable[[str], Any]
    write: Callable[[Any], str]
    pattern: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option or a positional argument of a command, for every face.

    `names` are its words on the command line; empty for that of the field. `least` and `most` bound a number, or the
    length of a text in a request, which has one line unless `has_lines`. A text `is_one_line` where listings show it:
    the command line refuses control characters, too. A file that `must_exist` is refused before the command runs.
    `complete` names a function of `testbed.cli.completion`. `reads` is a file whose text a request carries; `writes`
    is the name, among the files of a run, of one that the command writes, which must be new unless the flag
    `new_unless` is set. One that `is_local` is no part of requests and is refused with `--server`; one that is
    `for_caller`, too, is left to the client: when to ask again, what to overwrite. One of `only_with` is part of the
    request for that variant alone.
    One that `is_of_group` stands in front of the command's name: all commands of its group have it. One that
    `is_rest` takes all words that are no options of the command.
    """

    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    text: Text | None = None
    complete: str = ""
    show_default: bool = True
    envvar: str = ""
    is_argument: bool = False
    reads: bool = False
    writes: str = ""
    new_unless: str = ""
    is_local: bool = False
    for_caller: bool = False
    is_of_group: bool = False
    must_exist: bool = False
    is_rest: bool = False
    has_lines: bool = False
    is_one_line: bool = False
    only_with: str = ""


def option(sentence: str, /, *names: str, **more: Any) -> Option:
    """Return an option `--field-name VALUE`, or of these names."""
    return Option(help=sentence, names=names, **more)


def argument(sentence: str, /, metavar: str, **more: Any) -> Option:
    """Return a positional argument."""
    return Option(help=sentence, metavar=metavar, is_argument=True, **more)


def reads(sentence: str, /, *names: str, **more: Any) -> Option:
    """Return an option that names a file to read."""
    return Option(help=sentence, names=names, metavar="FILE", reads=True, **more)


def writes(file: str, sentence: str, /, *names: str, **more: Any) -> Option:
    """Return an option that names a file to write; `file` is its name among those of a service's run."""
    return Option(help=sentence, names=names, writes=file, **({"metavar": "FILE"} | more))


@dataclass(frozen=True)
class Field:
    """A field of a command: its name, its type without `None`, and what its option says."""

    name: str
    kind: Any
    default: Any
    option: Option
    is_optional: bool
    """None is a value."""

    @property
    def has_several(self) -> bool:
        """Return whether it takes several values."""
        return get_origin(self.kind) is tuple

    @property
    def words(self) -> tuple[str, ...]:
        """Return its names on the command line."""
        return self.option.names or (f"--{self.name.replace('_', '-')}",)


@dataclass(frozen=True, kw_only=True)
class Command(ABC, Generic[D_co]):
    """A command: the fields of a subclass are its options.

    `needs` says whether LAB is an argument, first or, with `is_lab_last`, last; `lab_help` is its help. A command that
    needs a switch has its address among its fields, in whose place a request names a switch of its lab. `role` is the
    lowest that may ask a service for it, with a token of the scope `needs_scope`; None for a command that runs on the
    user's machine alone. `readers` may see what came of it. One that `has_own_route` in the service is no run there.
    `variants` are flags that make a request of their own, each with its lane. `details` follow its sentence in its
    help. One without `has_json` is another program, which prints what it likes.
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
    has_own_route: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for each in fields_of(type(self)):
            if each.option.is_one_line and _has_control_characters(getattr(self, each.name)):
                raise UsageError(
                    f"{each.words[0]} contains a line break or another control character: remove it"
                )
        self.validate()

    def validate(self) -> None:
        """Raise an error of `testbed.errors` for options that exclude each other."""

    def files_to_write(self) -> dict[str, Path]:
        """Return the paths of the files that the command writes, by their names among the files of a run."""
        fields = [each for each in fields_of(type(self)) if each.option.writes]
        return {each.option.writes: path for each in fields if (path := getattr(self, each.name))}

    def default_files(self) -> dict[str, Path]:
        """Return the paths at which the caller keeps files that a service always writes for this command."""
        return {}

    @classmethod
    def group_epilog(cls) -> str:
        """Return the end of the help of its group, for commands that share options."""
        return ""

    @abstractmethod
    def run(self, at: Place) -> D_co:
        """Do it, say lines for people to `at`, and return the document."""


def _has_control_characters(text: str) -> bool:
    """Return whether a text would break a line of a listing or of a log."""
    return any(unicodedata.category(character) == "Cc" for character in text)


class StreamCommand(Command[D_co]):
    """A command with a document for each thing that happens: people read its `line()`, programs one JSON line each."""

    @abstractmethod
    def stream(self, at: Place) -> Generator[D_co, None, None]:
        """Yield documents as things happen. Closing it ends the session with the device."""

    def run(self, at: Place) -> D_co:
        """Raise `NotImplementedError`: a stream has no one document."""
        raise NotImplementedError


@cache
def fields_of(command: type[Command[Any]]) -> tuple[Field, ...]:
    """Return the fields of a command in the order of its options. Raises `TypeError` for a field without an option.

    A path that is neither read nor written nor local is refused, too: a request would name a file of the service.
    """
    hints = get_type_hints(command, include_extras=True)
    fields = []
    for each in dataclasses.fields(command):
        annotation = hints[each.name]
        options = [one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Option)]
        if get_origin(annotation) is not Annotated or len(options) != 1:
            raise TypeError(f"{command.__name__}.{each.name} has no option")
        kind = annotation.__origin__
        is_optional = get_origin(kind) is UnionType and NoneType in get_args(kind)
        if is_optional:
            (kind,) = [one for one in get_args(kind) if one is not NoneType]
        if Path in (kind, *get_args(kind)) and not (
            options[0].reads or options[0].writes or options[0].is_local
        ):
            raise TypeError(
                f"{command.__name__}.{each.name} is a path: declare whether it is read, written or local"
            )
        fields.append(Field(each.name, kind, each.default, options[0], is_optional))
    return tuple(fields)


@cache
def documents_of(command: type[Command[Any]]) -> tuple[type[Document], ...]:
    """Return the types of the documents with which a command may answer, or which it streams."""
    if issubclass(command, StreamCommand):
        return (get_args(get_type_hints(command.stream)["return"])[0],)
    answer = get_type_hints(command.run)["return"]
    return get_args(answer) if isinstance(answer, UnionType) else (answer,)


def carry_out(command: Command[D_co], place: Place) -> D_co:
    """Run a command and return its document. Raises what the command raises.

    Lines go to standard error where the command writes its file to standard output.
    """
    if STANDARD_OUTPUT in map(str, command.files_to_write().values()):
        place.stream = sys.stderr
    return command.run(place)
