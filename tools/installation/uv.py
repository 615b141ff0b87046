"""uv: fetched by pip in the version of `requirements/installer.lock`, and run with pip's configuration."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from tools.installation import system
from tools.installation.pip_settings import (
    UvSettings,
    configuration_files,
    read_configuration,
    settings_for_uv,
)
from tools.installation.processes import Done, InstallError, run

_SYSTEM_CERTIFICATES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
)
_READ_ALL = {"PIP_QUIET": "0", "PIP_VERBOSE": "3"}
"""A `quiet` in pip's files would silence the list of what they say."""
_ANYWHERE = {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def nothing() -> None:
    """Do nothing, while a process runs."""


@dataclass
class Uv:
    """uv for one checkout and one interpreter."""

    root: Path
    python: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def folder(self) -> Path:
        """The folder of uv and what it needs; ignored by git, removed by `make clean`."""
        return self.root / ".tools"

    @property
    def lock(self) -> Path:
        """The version of uv, with hashes."""
        return self.root / "requirements" / "installer.lock"

    @cached_property
    def version(self) -> str:
        """The locked version."""
        match = re.search(r"^uv==([^ \\]+)", self.lock.read_text(encoding="utf-8"), re.MULTILINE)
        if match is None:
            raise InstallError(
                f"{self.lock} names no version of uv: run make lock, or take the file from git"
            )
        return match[1]

    @property
    def path(self) -> Path:
        """The program."""
        named = self.environ.get("UV")
        return Path(named) if named else self.folder / f"uv-{self.version}"

    def is_there(self) -> bool:
        """Return whether there is nothing to fetch. Raises InstallError when the uv that was named is not there."""
        if os.access(self.path, os.X_OK):
            return True
        if self.environ.get("UV"):
            raise InstallError(f"UV names {self.path}, which is not a program: name another, or none")
        return False

    def fetch(self, tick: Callable[[], None] = nothing) -> None:
        """Download the wheel of uv with pip, which compares its hash, and take the program out of it."""
        self.folder.mkdir(exist_ok=True)
        for old in self.folder.glob("uv-*"):
            old.unlink()
        with TemporaryDirectory(dir=self.folder) as scratch:
            command: list[str | Path] = [
                *(self._pip_python() or self._make_pip(), "-m", "pip", "download", "--quiet", "--no-input"),
                *("--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", self.lock),
                *("--dest", scratch),
            ]
            done = run(command, environment={**self.environ, **_ANYWHERE}, tick=tick)
            if done.status:
                raise InstallError(
                    f"{done.last_lines}\npip cannot download uv {self.version}, which installs the rest (see above)."
                    " Without a network, or where the index has another version, name a uv that is installed:"
                    " make install UV=/path/to/uv"
                )
            (wheel,) = Path(scratch).glob("uv-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (member,) = (name for name in archive.namelist() if name.endswith("/scripts/uv"))
                program = Path(archive.extract(member, scratch))
            program.chmod(0o755)
            program.rename(self.path)

    def _pip_python(self) -> Path | None:
        """Return an interpreter that has pip: the one that runs this, or that of an environment made for pip."""
        if find_spec("pip") is not None:
            return self.python
        own = self.folder / "pip" / "bin" / "python"
        return own if own.exists() and run([own, "-m", "pip", "--version"]).status == 0 else None

    def _make_pip(self) -> Path:
        """Make an environment for pip. Raises InstallError without the module venv and without root to install it."""
        make: list[str | Path] = [self.python, "-m", "venv", "--clear", self.folder / "pip"]
        if run(make).status:
            package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
            system.apt_install([package])
            done = run(make)
            if done.status:
                raise InstallError(
                    f"{done.last_lines}\n{self.python} has neither pip nor venv, and pip fetches uv, which installs the"
                    f" rest. Run as root: apt-get install {package}, or name a uv that is installed:"
                    " make install UV=/path/to/uv"
                )
        return self.folder / "pip" / "bin" / "python"

    @cached_property
    def settings(self) -> UvSettings:
        """The configuration of pip, and the folder of the cache."""
        found = settings_for_uv(
            self._pip_configuration(),
            self.environ,
            torch_index=self.environ.get("TORCH_INDEX", ""),
            has_system_certificates=any(path.exists() for path in _SYSTEM_CERTIFICATES),
        )
        environment = {**found.environment, **self._cache(), "UV_PYTHON_DOWNLOADS": "never"}
        return UvSettings(environment, found.options, found.notes)

    def notes(self) -> tuple[str, ...]:
        """Return what pip would warn of, if its configuration was used."""
        return self.settings.notes if "settings" in vars(self) else ()

    def _pip_configuration(self) -> dict[str, str]:
        python = self._pip_python()
        if python is None:
            return {}  # a uv was named, and what is set for it is all there is
        command: list[str | Path] = [python, "-m", "pip", "config", "debug"]
        debugged = run(command, environment={**self.environ, **_READ_ALL}).output
        return read_configuration(configuration_files(debugged), self.environ)

    def _cache(self) -> dict[str, str]:
        """Return where uv keeps what it downloads: where the environments can be linked to it, if there is a place."""
        if self.environ.get("UV_CACHE_DIR"):
            return {}
        for folder in (cache_home(self.root, self.environ) / "uv", self.folder / "cache" / "uv"):
            if can_link(folder, self.folder):
                return {"UV_CACHE_DIR": str(folder)}
        return {"UV_CACHE_DIR": str(folder), "UV_LINK_MODE": self.environ.get("UV_LINK_MODE", "copy")}

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        tick: Callable[[], None] = nothing,
    ) -> Done:
        """Return how uv ended."""
        variables = {**self.environ, **self.settings.environment, **(environment or {})}
        return run([self.path, "--quiet", *arguments], environment=variables, tick=tick)


def cache_home(root: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder for caches: the user's, or one in the checkout where the user has none of his own.

    (With sudo, HOME may be that of another, who could not remove what we leave there.)
    """
    home = environ.get("HOME", "")
    named = Path(environ.get("XDG_CACHE_HOME") or Path(home, ".cache"))
    nearest = next((folder for folder in (named, *named.parents) if folder.exists()), None)
    if (
        named.is_absolute()
        and nearest
        and os.access(nearest, os.W_OK)
        and nearest.stat().st_uid == os.geteuid()
    ):
        return named
    return root / ".tools" / "cache"


def can_link(folder: Path, to: Path) -> bool:
    """Return whether a file in `folder` can have a second name in the folder `to`. Both are made."""
    try:
        for made in (folder, to):
            made.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder) as source, TemporaryDirectory(dir=to) as target:
            os.link(source.name, Path(target) / "link")
    except OSError:
        return False
    return True
