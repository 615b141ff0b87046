"""Table of models: names, builders, parameters and published settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from testbed.design.workloads.catalogue.mixture import Moe, build_moe
from testbed.design.workloads.catalogue.parameters import Parameters, apply_changes, read_settings
from testbed.design.workloads.catalogue.recommendation import (
    Candle,
    Dlrm,
    Ncf,
    build_candle,
    build_dlrm,
    build_ncf,
)
from testbed.design.workloads.catalogue.serving import Serve, build_serving
from testbed.design.workloads.catalogue.transformers import GPT_SIZES, Bert, Gpt, build_bert, build_gpt
from testbed.design.workloads.catalogue.vision import Resnet50, Vgg16, build_resnet50, build_vgg16
from testbed.design.workloads.model import Workload, is_whole
from testbed.errors import WorkloadError

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """A model. `build(name, parameters, nodes, origin)` returns its workload.

    `origin` is the publication. Presets are changes to `parameters`.
    """

    build: Callable[[str, Any, int, str], Workload]
    parameters: Parameters
    origin: str
    presets: Mapping[str, Settings]


_SOURCE_BY_PRESET = {
    "fig11": "TopoOpt artifact, scripts of figures 11 and 17, 128 servers",
    "fig12": "TopoOpt artifact, scripts of figures 12 to 15, 128 servers",
    "fig16": "TopoOpt artifact, scripts of figure 16, 16 servers a job",
    "testbed": "TopoOpt artifact, testbed of 12 servers with one device each",
    "released": "task graphs of figure 16 in the TopoOpt artifact: its programs, not the models that they name",
}

MODELS: Mapping[str, Model] = {
    "dlrm": Model(
        build_dlrm,
        Dlrm(),
        "Naumov et al. 2019",
        {
            "fig11": {},
            "fig16": {
                "tables": 16,
                "width": 256,
                "features": 1024,
                "batch_per_device": 256,
                "bottom": (1024,) * 7,
                "top": (2048,) * 15 + (1,),
            },
            "testbed": {
                "tables": 12,
                "rows": 100_000,
                "width": 32768,
                "bag": 10,
                "dot": 1,
                "bottom": (2048,) * 6 + (32768,),
                "top": (1024,) * 4 + (1,),
                "batch_per_device": 64,
                "devices_per_server": 1,
            },
        },
    ),
    "dlrm-a2a": Model(build_dlrm, Dlrm(tables=128), "Naumov et al. 2019", {"fig12": {}}),
    "candle": Model(
        build_candle,
        Candle(),
        "CANDLE Uno, Exascale Deep Learning for Cancer",
        {
            "fig11": {},
            "fig16": {"feature_layers": (4096,) * 12, "layers": (4096,) * 8 + (1,)},
            "testbed": {
                "feature_layers": (4096,) * 8,
                "layers": (4096,) * 4 + (1,),
                "batch": 120,
                "devices_per_server": 1,
            },
        },
    ),
    "bert": Model(
        build_bert,
        Bert(),
        "Devlin et al. 2019",
        {
            "fig11": {},
            "fig16": {"layers": 6, "sequence": 256, "hidden": 768, "heads": 12, "inner": 3072},
            "testbed": {"layers": 6, "batch": 24, "devices_per_server": 1},
            "base": {"hidden": 768, "heads": 12, "inner": 3072, "sequence": 512},
            "large": {"layers": 24, "sequence": 512},
            "released": {
                "layers": 6,
                "sequence": 256,
                "hidden": 768,
                "heads": 12,
                "inner": 768,
                "vocabulary": 0,
                "decoder": 1,
            },
        },
    ),
    "ncf": Model(build_ncf, Ncf(), "He et al. 2017", {"fig11": {}}),
    "resnet50": Model(build_resnet50, Resnet50(), "He et al. 2016", {"fig11": {}}),
    "vgg16": Model(
        build_vgg16,
        Vgg16(),
        "Simonyan and Zisserman 2015",
        {"fig11": {}, "fig16": {}, "released": {"image": 229, "padding": 2, "pool": 3}},
    ),
    "gpt": Model(build_gpt, Gpt(), "Brown et al. 2020, table 2.1", GPT_SIZES),
    "moe": Model(
        build_moe,
        Moe(),
        "Jiang et al. 2024 (Mixtral)",
        {
            "mixtral-8x7b": {},
            "mixtral-8x22b": {
                "layers": 56,
                "hidden": 6144,
                "heads": 48,
                "inner": 16384,
                "vocabulary": 32768,
            },
        },
    ),
    "serve": Model(
        build_serving,
        Serve(),
        "Grattafiori et al. 2024 (Llama 3)",
        {
            "llama-8b": {},
            "llama-70b": {"layers": 80, "hidden": 8192, "heads": 64, "inner": 28672},
            "mixtral-8x7b": {"experts": 8, "vocabulary": 32000},
        },
    ),
}


def workload(name: str, nodes: int, *, preset: str | None = None, **parameters: Any) -> Workload:
    """Return a model of the catalogue as a workload for `nodes` servers.

    Raises `WorkloadError` for unknown models, presets or parameters, and for invalid values.
    """
    if not is_whole(nodes) or nodes < 1:
        raise WorkloadError(f"{name} on {nodes} servers: give an integer of at least 1")
    label = f"{name}:{preset}" if preset else name
    publication = _find_model(name).origin
    origin = f"{publication}; {_SOURCE_BY_PRESET[preset]}" if preset in _SOURCE_BY_PRESET else publication
    return _find_model(name).build(label, make_parameters(name, preset, **parameters), nodes, origin)


def names() -> tuple[str, ...]:
    """Return the names of all models."""
    return tuple(MODELS)


def presets(name: str) -> tuple[str, ...]:
    """Return the names of a model's presets."""
    return tuple(_find_model(name).presets)


def make_parameters(name: str, preset: str | None = None, **changes: Any) -> Parameters:
    """Return the parameters of a model after the changes of a preset and then `changes`.

    Raises `WorkloadError` for unknown models, presets or parameters, and for invalid values.
    """
    model = _find_model(name)
    if preset is not None and preset not in model.presets:
        raise WorkloadError(f"{name} has no preset {preset!r}; it has {', '.join(model.presets)}")
    preset_changes = model.presets[preset] if preset is not None else {}
    return apply_changes(name, apply_changes(name, model.parameters, preset_changes), changes)


def parse_model_settings(name: str, settings: Mapping[str, str]) -> Settings:
    """Return the parameters for `workload` from command-line settings such as `{"top": "4096-4096-1"}`.

    Raises `WorkloadError` for an unknown model or an invalid text.
    """
    return read_settings(name, _find_model(name).parameters, settings)


def _find_model(name: str) -> Model:
    if name not in MODELS:
        close_matches = get_close_matches(name, MODELS, 1)
        hint = f"did you mean {close_matches[0]!r}? " if close_matches else ""
        raise WorkloadError(f"there is no model {name!r}; {hint}The models are {', '.join(MODELS)}")
    return MODELS[name]
