"""Serving of a language model: some servers read prompts, others write answers, and caches pass between them.

One iteration reads the prompts of a batch of requests (prefill). It moves their keys and values, layer by layer, to the
other side, which writes one token of each answer (decode). Either side can be omitted: decoding alone is the step that
repeats for every token. Each side has all weights and its own servers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from testbed.design.workloads.catalogue.blocks import SERVING_PRECISION, WorkloadBuilder, make_operator
from testbed.design.workloads.catalogue.mixture import check_routing, make_expert_block
from testbed.design.workloads.catalogue.parameters import Parameters
from testbed.design.workloads.catalogue.transformers import (
    TransformerShape,
    make_attention,
    make_embedding,
    make_head,
    make_mlp,
)
from testbed.design.workloads.model import Operator, Workload
from testbed.errors import WorkloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve(Parameters):
    """Parameters of a Llama-like model in half precision. A sample is a request.

    `prefill` and `decode` are 1 to include this side, or 0. A token is written in the context of `prompt` tokens and
    `history` earlier answer tokens. Each token goes to `routed` of the `experts`; a model with 0 experts is dense.
    """

    prefill: int = 1
    decode: int = 1
    prompt: int = 2048
    history: int = 0
    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    inner: int = 14336
    vocabulary: int = 128256
    experts: int = 0
    routed: int = 2
    batch_per_device: int = 8


def build_serving(name: str, parameters: Serve, nodes: int, origin: str) -> Workload:
    """Return the prefill side, the decode side, and the caches between them.

    Raises `WorkloadError` if both sides are omitted, and if `routed` exceeds `experts`.
    """
    builder = WorkloadBuilder()
    if not parameters.prefill and not parameters.decode:
        raise WorkloadError(f"{name}: prefill and decode are both 0; one must be above 0")
    if parameters.experts:
        check_routing(name, parameters.experts, parameters.routed)
    shape = TransformerShape(
        parameters.prompt,
        parameters.hidden,
        parameters.heads,
        parameters.kv_heads,
        parameters.inner,
        SERVING_PRECISION,
        is_llama_style=True,
        has_gated_mlp=True,
    )
    caches = _add_side(builder, parameters, "prefill", shape, parameters.prompt) if parameters.prefill else ()
    if parameters.decode:
        _add_side(
            builder,
            parameters,
            "decode",
            replace(shape, tokens=1),
            parameters.prompt + parameters.history,
            caches,
        )
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin, training=False)


def _add_side(
    builder: WorkloadBuilder,
    parameters: Serve,
    side: str,
    shape: TransformerShape,
    context: int,
    filling_caches: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Add all layers of a side, and return the side's caches. `filling_caches` of the other side fill these caches.

    Prefill writes a cache after each attention, decode reads a cache before it.
    """
    inputs = builder.add_chain([_name_by_side(side, make_embedding(shape, parameters.vocabulary))])
    caches: list[int] = []
    for layer_index in range(parameters.layers):
        feed_forward = (
            make_expert_block(str(layer_index), shape, parameters.experts, parameters.routed)
            if parameters.experts
            else (make_mlp(f"mlp{layer_index}", shape),)
        )
        layer = (make_attention(f"attention{layer_index}", shape, context=context), *feed_forward)
        block = [_name_by_side(side, part) for part in layer]
        if side == "decode":
            caches.append(
                builder.add_operator(
                    make_cache(f"decode.cache{layer_index}", shape, context),
                    *filling_caches[layer_index : layer_index + 1],
                )
            )
            inputs = (*inputs, caches[-1])
        inputs = builder.add_chain(block[:1], *inputs)
        if side == "prefill":
            caches.append(
                builder.add_operator(make_cache(f"prefill.cache{layer_index}", shape, context), *inputs)
            )
        inputs = builder.add_chain(block[1:], *inputs)
    builder.add_operator(
        _name_by_side(side, make_head(replace(shape, tokens=1), parameters.vocabulary, is_tied=False)),
        *inputs,
    )
    return tuple(caches)


def _name_by_side(side: str, part: Operator) -> Operator:
    return replace(part, name=f"{side}.{part.name}")


def make_cache(name: str, shape: TransformerShape, tokens: int) -> Operator:
    """Return an operator that only stores and passes on a layer's keys and values of `tokens` tokens."""
    return make_operator(
        name,
        "cache",
        flops=0.0,
        parameter_count=0,
        output_count=2 * tokens * shape.kv_width,
        moved_count=0.0,
        precision=shape.precision,
        ways=("data", "tensor"),
        most_shards=shape.kv_heads,
    )
