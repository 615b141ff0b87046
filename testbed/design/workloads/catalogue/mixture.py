"""Mixture of experts: transformers whose tokens each use a few of many MLPs (Shazeer et al. 2017; Mixtral, 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.design.workloads.catalogue.blocks import MIXED_PRECISION, WorkloadBuilder, make_operator
from testbed.design.workloads.catalogue.parameters import Parameters
from testbed.design.workloads.catalogue.transformers import (
    TransformerShape,
    make_attention,
    make_embedding,
    make_head,
)
from testbed.design.workloads.model import Operator, Workload
from testbed.errors import WorkloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe(Parameters):
    """Model whose layers have `experts` experts, of which each token uses `routed`.

    It has gated MLPs and grouped queries, as in Mixtral.
    """

    layers: int = 32
    sequence: int = 4096
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    inner: int = 14336
    experts: int = 8
    routed: int = 2
    vocabulary: int = 32000


def build_moe(name: str, parameters: Moe, nodes: int, origin: str) -> Workload:
    """Return a mixture of experts: an embedding, layers of attention, router and experts, and a head."""
    builder = WorkloadBuilder()
    check_routing(name, parameters.experts, parameters.routed)
    shape = TransformerShape(
        parameters.sequence,
        parameters.hidden,
        parameters.heads,
        parameters.kv_heads,
        parameters.inner,
        MIXED_PRECISION,
        is_llama_style=True,
        has_gated_mlp=True,
    )
    inputs = builder.add_chain([make_embedding(shape, parameters.vocabulary)])
    for layer in range(parameters.layers):
        block = (
            make_attention(f"attention{layer}", shape),
            *make_expert_block(str(layer), shape, parameters.experts, parameters.routed),
        )
        inputs = builder.add_chain(block, *inputs)
    builder.add_operator(make_head(shape, parameters.vocabulary, is_tied=False), *inputs)
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin)


def check_routing(name: str, expert_count: int, experts_per_token: int) -> None:
    """Raise `WorkloadError` if a token goes to more experts than there are."""
    if experts_per_token > expert_count:
        raise WorkloadError(
            f"{name}: each token goes to {experts_per_token} of {expert_count} experts; routed must be at most experts"
        )


def make_expert_block(
    suffix: str, shape: TransformerShape, expert_count: int, experts_per_token: int
) -> tuple[Operator, Operator]:
    """Return the router, which passes the tokens on, and the experts.

    Capacity is unlimited and tokens are spread evenly: each token goes to `experts_per_token` experts and back.
    Parameters count all experts; operations count only the experts that a token uses.
    """
    return _make_router(f"router{suffix}", shape, expert_count), _make_experts(
        f"experts{suffix}", shape, expert_count, experts_per_token
    )


def _make_router(name: str, shape: TransformerShape, expert_count: int) -> Operator:
    tokens, hidden = shape.tokens, shape.hidden
    return make_operator(
        name,
        "router",
        flops=2.0 * tokens * hidden * expert_count,
        parameter_count=hidden * expert_count + hidden,
        output_count=tokens * hidden,
        moved_count=tokens * (2 * hidden + 2 * expert_count),
        precision=shape.precision,
    )


def _make_experts(name: str, shape: TransformerShape, expert_count: int, experts_per_token: int) -> Operator:
    tokens, hidden, inner = shape.tokens, shape.hidden, shape.inner
    matrix_count = 3 if shape.has_gated_mlp else 2
    return make_operator(
        name,
        "experts",
        flops=2.0 * tokens * experts_per_token * matrix_count * hidden * inner,
        parameter_count=expert_count * matrix_count * hidden * inner,
        output_count=tokens * hidden,
        moved_count=tokens * experts_per_token * (2 * hidden + 2 * matrix_count * inner),
        precision=shape.precision,
        ways=("expert", "data"),
        routed=experts_per_token,
        most_shards=expert_count,
    )
