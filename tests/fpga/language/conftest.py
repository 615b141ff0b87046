"""Fixtures that the tests of the language share: the examples, and one way to be refused."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "count_action"


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def examples() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def mutations() -> ModuleType:
    return _loaded("count_action_mutations", HERE / "mutations.py")


@pytest.fixture(scope="session")
def small_datapaths() -> ModuleType:
    return _loaded("count_action_small_datapaths", HERE / "small_datapaths.py")


@pytest.fixture(scope="session")
def random_datapaths() -> ModuleType:
    """Return the generator that all co-simulation shares."""
    return _loaded("random_datapaths_for_the_language", HERE.parent / "random_datapaths.py")


@pytest.fixture
def refused() -> Callable[..., Any]:
    """Return the errors of a text that is not accepted."""
    pytest.importorskip("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")
    from fpga.count_action import CountActionError, parse_text

    def refuse(text: str, **given: Any) -> Any:
        with pytest.raises(CountActionError) as caught:
            parse_text(text, "t.ca", **given)
        return caught.value.errors

    return refuse
