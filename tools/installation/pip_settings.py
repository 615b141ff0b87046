"""Translation of pip's configuration into settings of uv.

A machine that gets packages only through pip's configuration (a company's index, a folder of wheels, a certificate)
needs no second configuration for uv. Settings for uv itself, in `UV_...` variables, take precedence.
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
"""Sections in the order in which `pip install` reads them; an option in a later section overrides earlier ones."""
_KINDS = ("global", "user", "site", "env")
"""Kinds of configuration files in pip's order; the last is the file of PIP_CONFIG_FILE."""
_TRUE = ("y", "yes", "t", "true", "on", "1")
_INDEXES_OF_UV = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True)
class UvSettings:
    """Settings with which uv finds packages in the same places as pip."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables, not options, because the URL of an index may contain a password and all users can see options."""
    options: tuple[str, ...] = ()
    """Options of the install commands for settings without a variable."""
    notes: tuple[str, ...] = ()
    """Warnings that pip would print."""


def list_configuration_files(debug_output: str) -> list[Path]:
    """Return the files that pip reads, in increasing precedence, from the output of `pip config debug`."""
    kind, files = "", []
    for line in debug_output.splitlines():
        if heading := re.fullmatch(r"(\w+):", line):
            kind = heading[1]
        elif (file := re.fullmatch(r"\s+(.+), exists: True", line)) and kind in _KINDS:
            files.append((_KINDS.index(kind), len(files), Path(file[1])))
    return [path for _, _, path in sorted(files)]


def read_configuration(files: Sequence[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options of `pip install` from files in increasing precedence, then from `PIP_...` variables."""
    options: dict[tuple[str, str], str] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        parser.read(file, encoding=locale.getpreferredencoding(do_setlocale=False))
        for section in parser.sections():
            options |= {(section, _format_option(name)): text for name, text in parser.items(section)}
    for name, text in environ.items():
        if name.startswith("PIP_"):
            options[":env:", _format_option(name.removeprefix("PIP_"))] = text
    return {
        option: text
        for section in _SECTIONS
        for (section_read, option), text in options.items()
        if section_read == section and text  # like pip, ignore empty values
    }


def _format_option(name: str) -> str:
    return name.lower().replace("_", "-")


def translate_settings(
    options: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    torch_index: str = "",
    has_system_certificates: bool = False,
) -> UvSettings:
    """Return settings with which uv finds packages in the same places as pip with `options`.

    `torch_index` is an additional index. `environ` is the environment to which the result is added.
    """
    no_index = options.get("no-index", "").lower() in _TRUE
    links, notes = _find_links(options)
    environment = {
        **(
            {}
            if no_index
            else _add_torch_index(environ, torch_index)
            if any(name in environ for name in _INDEXES_OF_UV)
            else _make_index_variables(options, torch_index)
        ),
        **({"UV_FIND_LINKS": ",".join(links)} if links else {}),
        **_make_connection_variables(options),
        **_make_certificate_variables(options, environ, has_system_certificates=has_system_certificates),
    }
    variables = {
        name: text
        for name, text in environment.items()
        if not (name.startswith("UV_") and name in environ) or (name == "UV_INDEX" and torch_index)
    }
    return UvSettings(variables, ("--no-index",) if no_index else (), tuple(notes))


def _make_index_variables(options: Mapping[str, str], torch_index: str) -> dict[str, str]:
    """Return the variables for the indexes in pip's order; a version that several have is taken from the first of them.

    uv queries its default index last, so the last index becomes the default. Without UV_INDEX_STRATEGY, uv would
    consider only the first index that has a package, in any version.
    """
    extra = [*options.get("extra-index-url", "").split(), *torch_index.split()]
    if "index-url" not in options and not extra:
        return {}
    *extra_indexes, default_index = [
        _format_address(text) for text in (options.get("index-url", PYPI), *extra)
    ]
    if not extra_indexes:
        return {"UV_DEFAULT_INDEX": default_index}
    return {
        "UV_INDEX": " ".join(extra_indexes),
        "UV_DEFAULT_INDEX": default_index,
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def _add_torch_index(environ: Mapping[str, str], torch_index: str) -> dict[str, str]:
    """Return the variables that add the torch index to indexes that were set for uv itself."""
    if not torch_index:
        return {}
    return {
        "UV_INDEX": " ".join([*torch_index.split(), *environ.get("UV_INDEX", "").split()]),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def _find_links(options: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the folders and pages of wheels, and notes on missing folders, which are errors for uv but not for pip."""
    links, notes = [], []
    for text in options.get("find-links", "").split():
        address = _format_address(text)
        path = _get_path(address)
        if path is None or path.exists():
            links.append(address)
        else:
            notes.append(f"pip's find-links names {text}, which does not exist")
    return links, notes


def _make_connection_variables(options: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    if hosts := options.get("trusted-host", "").split():
        variables["UV_INSECURE_HOST"] = " ".join(hosts)
    if timeout := options.get("default-timeout") or options.get("timeout"):
        variables["UV_HTTP_TIMEOUT"] = str(math.ceil(float(timeout)))
    if retries := options.get("retries"):
        variables["UV_HTTP_RETRIES"] = retries
    if options.get("keyring-provider") == "subprocess":
        variables["UV_KEYRING_PROVIDER"] = "subprocess"
    if certificate := options.get("client-cert"):
        variables["SSL_CLIENT_CERT"] = certificate
    if proxy := options.get("proxy"):
        variables |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
    return variables


def _make_certificate_variables(
    options: Mapping[str, str], environ: Mapping[str, str], *, has_system_certificates: bool
) -> dict[str, str]:
    """Return the variables for trusted certificates: those of pip, or else those of the environment or the system."""
    if certificates := options.get("cert"):
        return _make_path_variables(certificates)
    if any(environ.get(name) for name in _CERTIFICATES):
        return {}
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # read by pip
        if certificates := environ.get(name):
            return _make_path_variables(certificates)
    return {"UV_SYSTEM_CERTS": "1"} if has_system_certificates else {}


def _make_path_variables(path: str) -> dict[str, str]:
    return {"SSL_CERT_DIR" if Path(path).is_dir() else "SSL_CERT_FILE": path}


def _format_address(text: str) -> str:
    """Return `text` if it is a URL, or the `file:` URL of a path.

    Spaces and commas separate values, so they are escaped.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text):
        return text.replace(",", "%2C")
    return Path(text).expanduser().absolute().as_uri().replace(",", "%2C")


def _get_path(address: str) -> Path | None:
    """Return the path of a `file:` URL; None for other URLs."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
