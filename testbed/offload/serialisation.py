"""Serialisation by value: objects are sent to workers, and a model's step is copied before it is measured."""

from __future__ import annotations

import ast
import io
import pickle
import random
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import find_spec
from itertools import islice
from os import sep
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from lightbed.wording import describe_extra
from testbed.errors import OffloadError

_MISSING_EXTRA = f"sending or copying a pipeline needs cloudpickle: {describe_extra('offload')}"
OWN_PACKAGE = "testbed"
_MAX_DEPTH = 12
_MAX_PARTS = 10_000
"""Largest number of elements or attributes of a value in which a model is searched."""


def serialise_parts(parts: Mapping[str, Any]) -> bytes:
    """Serialise named objects by value. Raises `OffloadError`, which names the part, if a part cannot be pickled."""
    register_modules()
    try:
        return _pickle_object(dict(parts))
    except Exception as error:
        culprit_path = next(
            (
                _describe_unpicklable_part(part, name)
                for name, part in parts.items()
                if not _is_picklable(part)
            ),
            "",
        )
        raise OffloadError(
            f"the pipeline cannot be sent to workers: {culprit_path}, which cannot be pickled ({error}): "
            "create it where it is used, or exclude it from pickling (`__getstate__`)"
        ) from error


class SourceFinder:
    """Import finder on a worker for the user's modules, which the trainer sends as source code."""

    has_trainer_sources = True

    def __init__(self, sources: Mapping[str, tuple[str, bool]]) -> None:
        self._sources = sources

    def install(self) -> None:
        """Install this finder, and remove the finder and modules of an earlier job, which may be outdated."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if not hasattr(finder, "has_trainer_sources")]
        for name, module in list(sys.modules.items()):
            if hasattr(getattr(module, "__loader__", None), "has_trainer_sources"):
                del sys.modules[name]
        sys.meta_path.append(self)  # last, so that packages installed on the worker take precedence

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module that the trainer sent, or None for other modules."""
        if name not in self._sources:
            return None
        return ModuleSpec(name, self, is_package=self._sources[name][1])  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python creates the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the source of a module."""
        code = compile(self._sources[module.__name__][0], f"<{module.__name__} of the trainer>", "exec")
        exec(code, module.__dict__)  # noqa: S102 - the user's own


def collect_sources(parts: Iterable[Any]) -> SourceFinder:
    """Return the sources of the user's modules that the code of these objects imports, directly or indirectly.

    Installed packages, packages with compiled modules, and the standard library are left out.
    """
    names = {getattr(owner, "__module__", None) for part in parts for owner in (part, type(part))}
    modules = [sys.modules[name] for name in names if name in sys.modules]
    pending_files = [
        Path(_get_file(module))
        for module in modules
        if module.__name__ == "__main__" or not is_installed(module)
    ]
    sources: dict[str, tuple[str, bool]] = {}
    visited_names = {OWN_PACKAGE, *sys.stdlib_module_names}
    while pending_files:
        for name in _find_imports(pending_files.pop()) - visited_names:
            visited_names.add(name)
            file_by_module = _find_files(name)
            sources |= {
                module: (path.read_text("utf-8"), path.stem == "__init__")
                for module, path in file_by_module.items()
            }
            pending_files += file_by_module.values()
    return SourceFinder(sources)


def _find_imports(file: Path) -> set[str]:
    """Return the top-level packages of all absolute imports in a file, also inside functions."""
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _find_files(name: str) -> dict[str, Path]:
    """Return the files of a module or package by module name, or {} if it is installed or has compiled modules."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return {}
    if (
        spec is None
        or spec.origin is None
        or not spec.origin.endswith(".py")
        or spec.origin.startswith(_list_installed_folders())
    ):
        return {}
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        return {name: origin}
    if any(file.name.endswith(tuple(EXTENSION_SUFFIXES)) for file in origin.parent.rglob("*")):
        return {}
    file_by_module = {}
    for file in origin.parent.rglob("*.py"):
        module_parts = file.relative_to(origin.parent).with_suffix("").parts
        file_by_module[
            ".".join((name, *(module_parts[:-1] if module_parts[-1] == "__init__" else module_parts)))
        ] = file
    return file_by_module


def copy_step(step: Any) -> Any:
    """Copy a model's step with all objects that it reaches, such as model, optimiser and counters. Classes stay shared.

    Raises `OffloadError` if a part cannot be copied, or if shared code reaches a model or an optimiser.
    """
    register_modules()
    shared_objects: list[Any] = []
    try:
        pickled_step = _pickle_object(step, shared_objects)
        return _Unpacker(io.BytesIO(pickled_step), shared_objects).load()
    except OffloadError:
        raise
    except Exception as error:
        raise OffloadError(
            "the step cannot be copied, and a measurement must not train your model: "
            f"{_describe_unpicklable_part(step, 'step')} ({error}); pass a step made for measuring: tune(other_step, "
            "copy=False)"
        ) from error


def register_modules() -> None:
    """Register this package and the user's modules for pickling by value, because workers cannot import them.

    A package with compiled modules is pickled by name.
    """
    cloudpickle = _import_cloudpickle()
    modules = [module for module in list(sys.modules.values()) if type(module) is ModuleType]
    compiled_packages = {
        module.__name__.partition(".")[0]
        for module in modules
        if _get_file(module).endswith(tuple(EXTENSION_SUFFIXES))
    }
    for module in modules:
        name = module.__name__
        if (
            sys.modules.get(name) is module
            and name.partition(".")[0] not in compiled_packages
            and not is_installed(module)
        ):
            cloudpickle.register_pickle_by_value(module)


def is_installed(module: ModuleType) -> bool:
    """Return whether workers need no copy: built-in modules, `__main__`, and installed packages other than ours."""
    name, file = module.__name__, _get_file(module)
    if name in {"__main__", "__mp_main__"}:
        return True  # cloudpickle sends these by value anyway
    is_on_workers = not file or file.startswith(_list_installed_folders())
    return is_on_workers and name.partition(".")[0] != OWN_PACKAGE


@cache
def _list_installed_folders() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages, including other environments."""
    folders = [
        sysconfig.get_path(scheme_path) for scheme_path in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    environment_folders = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    installed_folders = [*folders, *site.getsitepackages(), site.getusersitepackages(), *environment_folders]
    return tuple(f"{folder}{sep}" for folder in installed_folders)


def _get_file(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else ""


def _import_cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError as error:
        raise OffloadError(_MISSING_EXTRA) from error
    return cloudpickle


def _pickle_object(value: Any, shared: list[Any] | None = None) -> bytes:
    """Pickle an object. For the same process, pass `shared`: classes are appended to it and pickled as indices."""
    guard = _SharedCodeChecker()

    class Packer(_import_cloudpickle().Pickler):  # type: ignore[misc]  # cloudpickle is Any here
        def persistent_id(self, part: Any) -> int | None:
            if shared is None or not isinstance(part, FunctionType | type):
                return None
            guard.check(part)
            if isinstance(part, FunctionType):
                return None
            shared.append(part)
            return len(shared) - 1

        def reducer_override(self, part: Any) -> Any:
            if part is random.seed.__self__:  # type: ignore[attr-defined]
                return getattr, (random, "_inst")  # pickled by name: `random.seed` would not seed a copy
            if isinstance(part, ModuleType) and sys.modules.get(part.__name__) is not part:
                parent_attribute = _find_parent_attribute(part)
                if parent_attribute is not None:
                    return getattr, parent_attribute
            return super().reducer_override(part)

    file = io.BytesIO()
    Packer(file).dump(value)
    return file.getvalue()


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, number: int) -> Any:
        return self._shared[number]


def _find_parent_attribute(module: ModuleType) -> tuple[ModuleType, str] | None:
    """Return the installed module that has this module as an attribute, and the attribute's name, or None.

    A submodule of a compiled module is not in `sys.modules`, so it cannot be imported by name.
    """
    for candidate in list(sys.modules.values()):
        if type(candidate) is ModuleType and candidate.__name__ != "__main__" and is_installed(candidate):
            for name, value in list(vars(candidate).items()):
                if value is module:
                    return candidate, name
    return None


class _SharedCodeChecker:
    """Check that code that is not copied with a step (shared code) uses no model or optimiser by a global name."""

    def __init__(self) -> None:
        self._checked_code: set[tuple[Any, bool]] = set()

    def check(self, definition: FunctionType | type) -> None:
        """Raise `OffloadError` if a class or function, or the code that it calls, uses a model that is not copied.

        Classes, functions of installed packages, and the globals that they name are not copied. Other functions are
        copied with the globals that they name.
        """
        pending_definitions = [(definition, isinstance(definition, type) or _is_shared(definition))]
        while pending_definitions:
            pending_definition, is_shared = pending_definitions.pop()
            if isinstance(pending_definition, FunctionType):
                pending_definitions += self._check_function(
                    pending_definition, pending_definition.__qualname__, is_shared=is_shared
                )
            elif (
                not _is_library(pending_definition.__module__)
                and (pending_definition, True) not in self._checked_code
            ):
                self._checked_code.add((pending_definition, True))
                pending_definitions += [(base, True) for base in pending_definition.__bases__]
                for function in _yield_functions(pending_definition):
                    function_path = f"{pending_definition.__qualname__}.{function.__name__}"
                    pending_definitions += self._check_function(function, function_path, is_shared=True)

    def _check_function(
        self, function: FunctionType, function_path: str, *, is_shared: bool
    ) -> list[tuple[FunctionType | type, bool]]:
        """Check one function. Return the functions and classes that it names and that stay shared."""
        key = function.__code__, is_shared
        if key in self._checked_code or (_is_library(function.__module__) and not function.__closure__):
            return []
        self._checked_code.add(key)
        names = _find_names(function.__code__)
        value_by_name = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
        value_by_name |= _read_closure(function)
        shared_value_by_name = dict(value_by_name) if is_shared else {}
        for module in [
            candidate for candidate in value_by_name.values() if isinstance(candidate, ModuleType)
        ]:
            if is_installed(module) and not _is_library(module.__name__):
                shared_value_by_name |= {name: vars(module)[name] for name in names & vars(module).keys()}
        for name, value in shared_value_by_name.items():
            if _contains_model(value):
                raise OffloadError(
                    f"the step cannot be copied: {function_path} takes `{name}` from its module, and a measurement "
                    "must not train it; keep it as an attribute, or pass a step made for measuring: tune(other_step, "
                    "copy=False)"
                )
        named_definitions = [
            candidate for candidate in value_by_name.values() if isinstance(candidate, FunctionType | type)
        ]
        shared_named_definitions = [
            definition
            for definition in named_definitions
            if isinstance(definition, type) or _is_shared(definition)
        ]
        shared_definitions = [
            candidate
            for candidate in shared_value_by_name.values()
            if isinstance(candidate, FunctionType | type)
        ]
        return [(definition, True) for definition in (*shared_named_definitions, *shared_definitions)]


def _yield_functions(kind: type) -> Iterator[FunctionType]:
    """Yield the functions of a class, including those in properties, partial applications and wrappers."""
    for attribute in vars(kind).values():
        wrapped_functions = (
            getattr(attribute, name, None) for name in ("__func__", "fget", "fset", "func", "__wrapped__")
        )
        for function in (attribute, *wrapped_functions):
            if isinstance(function, FunctionType):
                yield function


def _read_closure(function: FunctionType) -> dict[str, Any]:
    """Return the closure variables of a function that have a value."""
    cell_by_name = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    value_by_name = {}
    for name, cell in cell_by_name.items():
        with suppress(ValueError):  # a cell without a value
            value_by_name[name] = cell.cell_contents
    return value_by_name


def _is_shared(definition: FunctionType | type) -> bool:
    """Return whether a function or class is pickled by name, because it belongs to an installed package."""
    module = sys.modules.get(definition.__module__)
    return (
        module is not None
        and definition.__module__ != "__main__"
        and is_installed(module)
        and "<" not in definition.__qualname__
    )


def _is_library(module: str | None) -> bool:
    """Return whether a module belongs to Python, numpy, torch or torchvision, which hold no user code."""
    top_package = (module or "").partition(".")[0]
    return top_package in sys.stdlib_module_names or top_package in {"numpy", "torch", "torchvision"}


def _contains_model(value: Any, remaining_depth: int = 3) -> bool:
    """Return whether a value is or contains a model, an optimiser or a tensor with a gradient."""
    torch: Any = sys.modules.get("torch")
    if torch is None or remaining_depth == 0 or isinstance(value, type | ModuleType | FunctionType):
        return False
    if isinstance(value, torch.Tensor):
        return bool(value.requires_grad)
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return True
    if type(value) is dict:
        parts: Iterable[Any] = value.values()
    elif type(value) in (list, tuple, set, frozenset):
        parts = value
    else:  # read the stored attributes without running the user's code
        try:
            parts = object.__getattribute__(value, "__dict__").values()
        except (AttributeError, TypeError):
            return False
    return any(_contains_model(part, remaining_depth - 1) for part in list(islice(parts, _MAX_PARTS)))


def _find_names(code: CodeType) -> set[str]:
    inner_codes = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*(_find_names(inner_code) for inner_code in inner_codes))


def _is_picklable(value: Any) -> bool:
    try:
        _pickle_object(value)
    except Exception:  # noqa: BLE001 - every error means that it cannot be pickled
        return False
    return True


def _describe_unpicklable_part(value: Any, path: str, depth: int = 0) -> str:
    """Describe the innermost part that cannot be pickled, by its path and type."""
    if depth < _MAX_DEPTH:
        for name, part in _yield_parts(value, path):
            if not _is_picklable(part):
                return _describe_unpicklable_part(part, name, depth + 1)
    kind = type(value)
    return f"`{path}` is a {kind.__module__}.{kind.__qualname__}"


def _yield_parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an object, each with its path for error messages."""
    if isinstance(value, MethodType):
        yield from _yield_parts(value.__self__, path)
        value = value.__func__
    if isinstance(value, FunctionType):
        for name in sorted(_find_names(value.__code__)):
            if name in value.__globals__:
                yield f"{name} of {Path(value.__code__.co_filename).name}", value.__globals__[name]
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            yield f"{name} of {value.__qualname__}", cell.cell_contents
    elif isinstance(value, dict):
        yield from ((f"{path}[{name!r}]", part) for name, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{path}[{number}]", part) for number, part in enumerate(value))
    elif isinstance(value, type):
        yield from (
            (f"{value.__name__}.{name}", part)
            for name, part in vars(value).items()
            if isinstance(part, FunctionType)
        )
    elif not isinstance(value, ModuleType):
        yield from ((f"{path}.{name}", part) for name, part in getattr(value, "__dict__", {}).items())
        yield type(value).__name__, type(value)
