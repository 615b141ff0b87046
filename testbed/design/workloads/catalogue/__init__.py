"""Models by name: DLRM, CANDLE Uno, BERT, NCF, ResNet50, VGG16, GPT, mixture of experts, serving.

    workload("dlrm", nodes=128, preset="fig11")
    workload("gpt", nodes=64, preset="13b", sequence=4096)

A preset holds published parameters. Further parameters override them.
"""

from testbed.design.workloads.catalogue.models import (
    MODELS,
    make_parameters,
    names,
    parse_model_settings,
    presets,
    workload,
)

__all__ = ["MODELS", "make_parameters", "names", "parse_model_settings", "presets", "workload"]
