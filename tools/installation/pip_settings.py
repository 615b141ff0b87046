"""The configuration of pip, handed on to uv.

A machine that packages reach only through pip's configuration (a company's index, a folder of wheels, a certificate)
needs no second one for uv. What is set for uv itself, as `UV_...`, comes first.
"""

from __future__ import annotations

import configparser
import locale
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

PYPI = "https://pypi.org/simple"
_SECTIONS = ("global", "install", ":env:")
"""In the order in which `pip install` reads them: a later one replaces what an earlier one says of an option."""
_KINDS = ("global", "user", "site", "env")
"""Kinds of files in pip's order, the last being the file of PIP_CONFIG_FILE."""
_TRUE = ("y", "yes", "t", "true", "on", "1")
_INDEXES_OF_UV = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True)
class UvSettings:
    """Settings with which uv finds packages where pip finds them."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables rather than options: the address of an index may hold a password, and options are seen by all users."""
    options: tuple[str, ...] = ()
    """Settings without a variable; for the commands that install."""
    notes: tuple[str, ...] = ()
    """Warnings that pip would print."""


def configuration_files(debugged: str) -> list[Path]:
    """Return the files that pip reads, a later one over an earlier one, from the output of `pip config debug`."""
    kind, found = "", []
    for line in debugged.splitlines():
        if heading := re.fullmatch(r"(\w+):", line):
            kind = heading[1]
        elif (file := re.fullmatch(r"\s+(.+), exists: True", line)) and kind in _KINDS:
            found.append((_KINDS.index(kind), len(found), Path(file[1])))
    return [path for _, _, path in sorted(found)]


def read_configuration(files: Sequence[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options of `pip install`: those of files, a later one over an earlier one, then `PIP_...`."""
    found: dict[tuple[str, str], str] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        parser.read(file, encoding=locale.getpreferredencoding(do_setlocale=False))
        for section in parser.sections():
            found |= {(section, _option(name)): text for name, text in parser.items(section)}
    for name, text in environ.items():
        if name.startswith("PIP_"):
            found[":env:", _option(name.removeprefix("PIP_"))] = text
    return {
        option: text
        for section in _SECTIONS
        for (of, option), text in found.items()
        if of == section and text  # as pip does: an empty value says nothing
    }


def _option(name: str) -> str:
    return name.lower().replace("_", "-")


def settings_for_uv(
    options: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    torch_index: str = "",
    has_system_certificates: bool = False,
) -> UvSettings:
    """Return what makes uv find packages where pip with `options` finds them.

    `torch_index` is one more index. `environ` is the environment that the result is added to.
    """
    no_index = options.get("no-index", "").lower() in _TRUE
    links, notes = _find_links(options)
    environment = {
        **(
            {}
            if no_index
            else _with_torch_index(environ, torch_index)
            if any(name in environ for name in _INDEXES_OF_UV)
            else _indexes(options, torch_index)
        ),
        **({"UV_FIND_LINKS": ",".join(links)} if links else {}),
        **_connection(options),
        **_certificates(options, environ, has_system_certificates=has_system_certificates),
    }
    kept = {
        name: text
        for name, text in environment.items()
        if not (name.startswith("UV_") and name in environ) or (name == "UV_INDEX" and torch_index)
    }
    return UvSettings(kept, ("--no-index",) if no_index else (), tuple(notes))


def _indexes(options: Mapping[str, str], torch_index: str) -> dict[str, str]:
    """Return the indexes in pip's order: of a version that several have, the file of the first is taken.

    uv asks its default index last, so that is the last one here. Without the strategy it would look no further
    than the first index that knows a package, in whatever version.
    """
    extra = [*options.get("extra-index-url", "").split(), *torch_index.split()]
    if "index-url" not in options and not extra:
        return {}
    *first, last = [_address(text) for text in (options.get("index-url", PYPI), *extra)]
    if not first:
        return {"UV_DEFAULT_INDEX": last}
    return {
        "UV_INDEX": " ".join(first),
        "UV_DEFAULT_INDEX": last,
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def _with_torch_index(environ: Mapping[str, str], torch_index: str) -> dict[str, str]:
    """Return the indexes of somebody who has set uv's own, with the one more that was named for torch."""
    if not torch_index:
        return {}
    return {
        "UV_INDEX": " ".join([*torch_index.split(), *environ.get("UV_INDEX", "").split()]),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def _find_links(options: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the folders and pages of wheels, and notes on folders that are not there, which stop uv and not pip."""
    links, notes = [], []
    for text in options.get("find-links", "").split():
        address = _address(text)
        path = _path_of(address)
        if path is None or path.exists():
            links.append(address)
        else:
            notes.append(f"pip's find-links names {text}, which is not there")
    return links, notes


def _connection(options: Mapping[str, str]) -> dict[str, str]:
    found = {}
    if hosts := options.get("trusted-host", "").split():
        found["UV_INSECURE_HOST"] = " ".join(hosts)
    if timeout := options.get("default-timeout") or options.get("timeout"):
        found["UV_HTTP_TIMEOUT"] = str(math.ceil(float(timeout)))
    if retries := options.get("retries"):
        found["UV_HTTP_RETRIES"] = retries
    if options.get("keyring-provider") == "subprocess":
        found["UV_KEYRING_PROVIDER"] = "subprocess"
    if certificate := options.get("client-cert"):
        found["SSL_CLIENT_CERT"] = certificate
    if proxy := options.get("proxy"):
        found |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
    return found


def _certificates(
    options: Mapping[str, str], environ: Mapping[str, str], *, has_system_certificates: bool
) -> dict[str, str]:
    """Return which certificates are believed: pip's, or those that others on this machine are given."""
    if certificates := options.get("cert"):
        return _certificates_at(certificates)
    if any(environ.get(name) for name in _CERTIFICATES):
        return {}
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # read by pip
        if certificates := environ.get(name):
            return _certificates_at(certificates)
    return {"UV_SYSTEM_CERTS": "1"} if has_system_certificates else {}


def _certificates_at(path: str) -> dict[str, str]:
    return {"SSL_CERT_DIR" if Path(path).is_dir() else "SSL_CERT_FILE": path}


def _address(text: str) -> str:
    """Return a URL: of a path its `file:` form, in which spaces and commas do not separate."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text):
        return text.replace(",", "%2C")
    return Path(text).expanduser().absolute().as_uri().replace(",", "%2C")


def _path_of(address: str) -> Path | None:
    """Return the file or folder behind a `file:` URL; None for any other."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
