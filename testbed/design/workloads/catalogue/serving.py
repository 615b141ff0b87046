"""Serving a language model: prompts are read by some servers, answers written by others, and caches pass between.

One iteration reads the prompts of a batch of requests (prefill), moves their keys and values, layer by layer, to where
answers are written, and writes one token of each (decode). Either side can be left out: decoding alone is the step
that is repeated for every token. Each side holds all weights and is to be laid out over servers of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from testbed.design.workloads.catalogue.blocks import SERVING, Assembly, operator
from testbed.design.workloads.catalogue.mixture import check_routing, expert_block
from testbed.design.workloads.catalogue.parameters import Parameters
from testbed.design.workloads.catalogue.transformers import Shape, attention, embedding, head, mlp
from testbed.design.workloads.model import Operator, Workload
from testbed.errors import WorkloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve(Parameters):
    """A Llama-like model in half precision; a sample is a request.

    `prefill` and `decode` are 1 or 0: which sides there are. A token is written in the context of the `prompt` and of
    `history` tokens written before. With `experts` each token goes to `routed` of them; 0 is a dense model.
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


def serve(name: str, parameters: Serve, nodes: int, origin: str) -> Workload:
    """Return the reading side, the writing side, and the caches between them."""
    p, model = parameters, Assembly()
    if not p.prefill and not p.decode:
        raise WorkloadError(f"{name}: prefill and decode are both 0; one must be above 0")
    if p.experts:
        check_routing(name, p.experts, p.routed)
    shape = Shape(p.prompt, p.hidden, p.heads, p.kv_heads, p.inner, SERVING, plain=True, gated=True)
    caches = _side(model, p, "prefill", shape, p.prompt) if p.prefill else ()
    if p.decode:
        _side(model, p, "decode", replace(shape, tokens=1), p.prompt + p.history, caches)
    return model.workload(name, p.samples(nodes), origin=origin, training=False)


def _side(
    model: Assembly, p: Serve, side: str, shape: Shape, context: int, filled: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Add all layers once; return its caches. `filled` are the caches of the other side that these begin with.

    What reads prompts leaves a cache behind each layer; what writes answers has one before it.
    """
    inputs = model.chain([_of(side, embedding(shape, p.vocabulary))])
    caches: list[int] = []
    for i in range(p.layers):
        after = expert_block(str(i), shape, p.experts, p.routed) if p.experts else (mlp(f"mlp{i}", shape),)
        layer = (attention(f"attention{i}", shape, context=context), *after)
        block = [_of(side, made) for made in layer]
        if side == "decode":
            caches.append(model.add(cache(f"decode.cache{i}", shape, context), *filled[i : i + 1]))
            inputs = (*inputs, caches[-1])
        inputs = model.chain(block[:1], *inputs)
        if side == "prefill":
            caches.append(model.add(cache(f"prefill.cache{i}", shape, context), *inputs))
        inputs = model.chain(block[1:], *inputs)
    model.add(_of(side, head(replace(shape, tokens=1), p.vocabulary, tied=False)), *inputs)
    return tuple(caches)


def _of(side: str, made: Operator) -> Operator:
    return replace(made, name=f"{side}.{made.name}")


def cache(name: str, shape: Shape, tokens: int) -> Operator:
    """Return keys and values of so many tokens of one layer: nothing to compute, but to keep and to pass on."""
    return operator(
        name,
        "cache",
        flops=0.0,
        parameters=0,
        output=2 * tokens * shape.kv_width,
        moved=0.0,
        precision=shape.precision,
        ways=("data", "tensor"),
        most_shards=shape.kv_heads,
    )
