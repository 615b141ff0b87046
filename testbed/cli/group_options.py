"""Options that the commands of a group share: they belong to the group, and may stand anywhere on the line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import typer
from typer.core import TyperGroup


class OptionsAnywhere(TyperGroup):
    """A group whose own options may stand behind the command as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the options of the group in front."""
        own = {name for option in self.params for name in option.opts if name.startswith("--")}
        front: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":  # what follows are arguments, whatever they look like
                rest += [word, *words]
                break
            name, separator, _ = word.partition("=")
            if name in own - {"--help"}:
                front += [word] if separator else [word, *islice(words, 1)]
            else:
                rest.append(word)
        return super().parse_args(ctx, [*front, *rest])


def keep_options(parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Return the callback of a group with these parameters: their values wait in the context for the command."""

    def keep(context: typer.Context, **values: Any) -> None:
        context.obj = values

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    vars(keep)["__signature__"] = inspect.Signature([context, *parameters])
    return keep
