"""uv, downloaded by pip in the version of `requirements/installer.lock`, and run with pip's configuration."""

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
    list_configuration_files,
    read_configuration,
    translate_settings,
)
from tools.installation.processes import InstallError, ProcessResult, run

_SYSTEM_CERTIFICATES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
)
_READ_ALL = {"PIP_QUIET": "0", "PIP_VERBOSE": "3"}
"""Overrides `quiet` in pip's configuration, which would hide the output of `pip config debug`."""
_ANYWHERE = {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def do_nothing() -> None:
    """Do nothing: the default tick."""


@dataclass
class Uv:
    """uv for one checkout and one interpreter."""

    root: Path
    python: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def folder(self) -> Path:
        """The folder of uv and its files; ignored by git, removed by `make clean`."""
        return self.root / ".tools"

    @property
    def lock(self) -> Path:
        """The lock file with the version and hashes of uv."""
        return self.root / "requirements" / "installer.lock"

    @cached_property
    def version(self) -> str:
        """The locked version."""
        match = re.search(r"^uv==([^ \\]+)", self.lock.read_text(encoding="utf-8"), re.MULTILINE)
        if match is None:
            raise InstallError(
                f"{self.lock} contains no version of uv: run make lock, or restore the file from git"
            )
        return match[1]

    @property
    def path(self) -> Path:
        """The uv program: that of the variable UV, or the downloaded one."""
        configured_path = self.environ.get("UV")
        return Path(configured_path) if configured_path else self.folder / f"uv-{self.version}"

    def is_installed(self) -> bool:
        """Return whether uv is available. Raises `InstallError` if the variable UV does not name a program."""
        if os.access(self.path, os.X_OK):
            return True
        if self.environ.get("UV"):
            raise InstallError(f"UV is {self.path}, which is not a program: set it to another, or unset it")
        return False

    def fetch(self, tick: Callable[[], None] = do_nothing) -> None:
        """Download the wheel of uv with pip, which verifies its hash, and extract the program.

        Raises `InstallError` if pip cannot download it.
        """
        self.folder.mkdir(exist_ok=True)
        for old in self.folder.glob("uv-*"):
            old.unlink()
        with TemporaryDirectory(dir=self.folder) as scratch:
            command: list[str | Path] = [
                *(
                    self._find_pip_python() or self._make_pip(),
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--no-input",
                ),
                *("--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", self.lock),
                *("--dest", scratch),
            ]
            result = run(command, environment={**self.environ, **_ANYWHERE}, tick=tick)
            if result.status:
                raise InstallError(
                    f"{result.last_lines}\npip cannot download uv {self.version}, which installs the rest (see above)."
                    " Without a network, or if the index lacks this version, use an installed uv:"
                    " make install UV=/path/to/uv"
                )
            (wheel,) = Path(scratch).glob("uv-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (member,) = (name for name in archive.namelist() if name.endswith("/scripts/uv"))
                program = Path(archive.extract(member, scratch))
            program.chmod(0o755)
            program.rename(self.path)  # last, so that a killed download leaves no program

    def _find_pip_python(self) -> Path | None:
        """Return an interpreter with pip: this one, or that of the environment for pip; None without either."""
        if find_spec("pip") is not None:
            return self.python
        pip_python = self.folder / "pip" / "bin" / "python"
        return (
            pip_python
            if pip_python.exists() and run([pip_python, "-m", "pip", "--version"]).status == 0
            else None
        )

    def _make_pip(self) -> Path:
        """Create an environment for pip. Raises `InstallError` if the module venv cannot be found or installed."""
        make: list[str | Path] = [self.python, "-m", "venv", "--clear", self.folder / "pip"]
        if run(make).status:
            package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
            system.install_packages([package])
            result = run(make)
            if result.status:
                raise InstallError(
                    f"{result.last_lines}\n{self.python} has neither pip nor venv, but pip downloads uv, which installs"
                    f" the rest. Run as root: apt-get install {package}, or use an installed uv:"
                    " make install UV=/path/to/uv"
                )
        return self.folder / "pip" / "bin" / "python"

    @cached_property
    def settings(self) -> UvSettings:
        """The settings of uv: pip's configuration, and the cache folder."""
        pip_settings = translate_settings(
            self._read_pip_configuration(),
            self.environ,
            torch_index=self.environ.get("TORCH_INDEX", ""),
            has_system_certificates=any(path.exists() for path in _SYSTEM_CERTIFICATES),
        )
        environment = {
            **pip_settings.environment,
            **self._make_cache_variables(),
            "UV_PYTHON_DOWNLOADS": "never",
        }
        return UvSettings(environment, pip_settings.options, pip_settings.notes)

    def list_notes(self) -> tuple[str, ...]:
        """Return the warnings on pip's configuration, if uv has used it."""
        return self.settings.notes if "settings" in vars(self) else ()

    def _read_pip_configuration(self) -> dict[str, str]:
        python = self._find_pip_python()
        if python is None:
            return {}  # without pip there are only the settings of the given uv
        command: list[str | Path] = [python, "-m", "pip", "config", "debug"]
        debug_output = run(command, environment={**self.environ, **_READ_ALL}).output
        return read_configuration(list_configuration_files(debug_output), self.environ)

    def _make_cache_variables(self) -> dict[str, str]:
        """Return the variables for the cache of uv: a folder from which files can be hard-linked, or else copying."""
        if self.environ.get("UV_CACHE_DIR"):
            return {}
        for folder in (find_cache_home(self.root, self.environ) / "uv", self.folder / "cache" / "uv"):
            if can_link(folder, self.folder):
                return {"UV_CACHE_DIR": str(folder)}
        return {"UV_CACHE_DIR": str(folder), "UV_LINK_MODE": self.environ.get("UV_LINK_MODE", "copy")}

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        tick: Callable[[], None] = do_nothing,
    ) -> ProcessResult:
        """Run uv, and return its result."""
        variables = {**self.environ, **self.settings.environment, **(environment or {})}
        return run([self.path, "--quiet", *arguments], environment=variables, tick=tick)


def find_cache_home(root: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder for caches: the user's, or one in the checkout if that belongs to somebody else.

    With sudo, HOME may be that of another user, who could not remove files of root.
    """
    home = environ.get("HOME", "")
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(home, ".cache"))
    nearest = next((folder for folder in (cache, *cache.parents) if folder.exists()), None)
    if (
        cache.is_absolute()
        and nearest
        and os.access(nearest, os.W_OK)
        and nearest.stat().st_uid == os.geteuid()
    ):
        return cache
    return root / ".tools" / "cache"


def can_link(folder: Path, to: Path) -> bool:
    """Return whether files in `folder` can be hard-linked into the folder `to`. Creates both folders."""
    try:
        for directory in (folder, to):
            directory.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder) as source, TemporaryDirectory(dir=to) as target:
            os.link(source.name, Path(target) / "link")
    except OSError:
        return False
    return True
