"""Redaction: secrets on command lines and in environments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SECRET = re.compile(r"pass(word|phrase|wd)?|token|secret|key|credential|auth", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"-.*(pass(word|phrase|wd)?|token|secret|api-?key|credential)", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_KEPT_VARIABLES = re.compile(r"(NCCL|CUDA|UCX|OMPI_MCA|GLOO|OMP)_\w*")


def redact_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return a command line without its secrets: values of options such as `--password`, names in URLs.

    >>> redact_arguments(["testbed", "--password", "x", "--token=y", "polatis+tl1://u:p@sw:3082"])
    ('testbed', '--password', '***', '--token=***', 'polatis+tl1://***@sw:3082')
    """
    shown: list[str] = []
    secret_follows = False
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        is_secret = _SECRET_OPTION.match(option) is not None
        if secret_follows:
            shown.append("***")
        elif is_secret and equals:
            shown.append(f"{option}=***")
        else:
            shown.append(_SECRET_IN_URL.sub("***@", argument))
        secret_follows = is_secret and not equals and not secret_follows
    return tuple(shown)


def redact_document(document: Mapping[str, object]) -> dict[str, object]:
    """Return the document with an `env` that holds only settings of communication, none of them a secret.

    >>> redact_document({"env": ["HOME=/root", "NCCL_ALGO=Ring", "NCCL_TOKEN=x"]})
    {'env': ['NCCL_ALGO=Ring']}
    """
    kept = dict(document)
    if "env" in kept:
        kept["env"] = _kept_environment(kept["env"])
    return kept


def _kept_environment(environment: object) -> list[str]:
    if isinstance(environment, Mapping):
        environment = [f"{key}={value}" for key, value in environment.items()]
    entries = (
        [entry for entry in environment if isinstance(entry, str)]
        if isinstance(environment, list | tuple)
        else []
    )
    names = {entry: entry.partition("=")[0] for entry in entries}
    return [
        entry for entry, name in names.items() if _KEPT_VARIABLES.fullmatch(name) and not _SECRET.search(name)
    ]
