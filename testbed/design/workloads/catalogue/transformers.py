"""BERT and GPT: attention and MLP blocks that can be split as in Megatron-LM.

For a sequence of s tokens of width h, a layer takes 24 s h^2 + 4 s^2 h operations in the forward pass (Narayanan et
al., SC 2021, appendix). It has 12 h^2 + 13 h parameters. If split over shards, each block needs an AllReduce of its
s x h output in the forward pass, and of the gradient of its input in the backward pass (Shoeybi et al. 2019, section
3).
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.design.workloads.catalogue.blocks import (
    MIXED_PRECISION,
    SINGLE_PRECISION,
    Precision,
    WorkloadBuilder,
    make_operator,
)
from testbed.design.workloads.catalogue.parameters import Parameters
from testbed.design.workloads.model import Operator, Workload
from testbed.errors import WorkloadError


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """Parameters shared by the blocks of one model.

    `tokens` is the number of tokens of a sample. `kv_heads` is the number of heads for keys and values, which queries
    share (grouped-query attention). `is_llama_style` blocks have no biases, and a normalisation without shifts (RMS
    norm), as in Llama. Raises `WorkloadError` unless `heads` divides `hidden` and `kv_heads` divides `heads`.
    """

    tokens: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    precision: Precision
    is_llama_style: bool = False
    has_gated_mlp: bool = False

    def __post_init__(self) -> None:
        for multiple, divisor in (("hidden", "heads"), ("heads", "kv_heads")):
            multiple_value, divisor_value = getattr(self, multiple), getattr(self, divisor)
            if multiple_value % divisor_value:
                raise WorkloadError(
                    f"{multiple} is {multiple_value}, {divisor} is {divisor_value}: "
                    f"{multiple} must be a multiple of {divisor}"
                )

    @property
    def kv_width(self) -> int:
        """Width of the keys of a token, which is also the width of its values."""
        return self.hidden // self.heads * self.kv_heads


def make_attention(name: str, shape: TransformerShape, *, context: int | None = None) -> Operator:
    """Return a block of normalisation, projections and attention of `tokens` queries over `context` keys.

    The context defaults to the block's own tokens. A shard has whole heads of keys and values, and the queries that
    use them.
    """
    tokens, hidden, kv_width = shape.tokens, shape.hidden, shape.kv_width
    key_count = tokens if context is None else context
    weight_count = 2 * hidden * hidden + 2 * hidden * kv_width
    vector_parameter_count = hidden if shape.is_llama_style else 2 * hidden + 2 * hidden + 2 * kv_width
    return make_operator(
        name,
        "attention",
        flops=2.0 * tokens * weight_count + 4.0 * tokens * key_count * hidden,
        parameter_count=weight_count + vector_parameter_count,
        output_count=tokens * hidden,
        moved_count=tokens * (6 * hidden + 4 * kv_width)
        + 4 * shape.heads * tokens * key_count
        + (2 * key_count * kv_width if key_count != tokens else 0),
        precision=shape.precision,
        ways=("data", "tensor"),
        forward_reduce_count=tokens * hidden,
        backward_reduce_count=tokens * hidden,
        most_shards=shape.kv_heads,
    )


def make_mlp(name: str, shape: TransformerShape) -> Operator:
    """Return a block of normalisation, one or (if gated) two products to the inner width, and a product back."""
    tokens, hidden, inner = shape.tokens, shape.hidden, shape.inner
    up_projection_count = 2 if shape.has_gated_mlp else 1
    weight_count = (up_projection_count + 1) * hidden * inner
    vector_parameter_count = (
        hidden if shape.is_llama_style else 2 * hidden + up_projection_count * inner + hidden
    )
    return make_operator(
        name,
        "mlp",
        flops=2.0 * tokens * weight_count,
        parameter_count=weight_count + vector_parameter_count,
        output_count=tokens * hidden,
        moved_count=tokens * (2 * hidden + 2 * (up_projection_count + 1) * inner),
        precision=shape.precision,
        ways=("data", "tensor"),
        forward_reduce_count=tokens * hidden,
        backward_reduce_count=tokens * hidden,
        most_shards=inner,
    )


def make_embedding(
    shape: TransformerShape, vocabulary_size: int, position_count: int = 0, extra_parameters: int = 0
) -> Operator:
    """Return the sum of word vectors and learned position vectors. If split, each shard has a part of the words."""
    tokens, hidden = shape.tokens, shape.hidden
    return make_operator(
        "embedding",
        "embedding",
        flops=float(tokens * hidden),
        parameter_count=(vocabulary_size + position_count) * hidden + extra_parameters,
        output_count=tokens * hidden,
        moved_count=3 * tokens * hidden,
        precision=shape.precision,
        ways=("data", "tensor"),
        forward_reduce_count=tokens * hidden,
        most_shards=vocabulary_size,
    )


def make_head(
    shape: TransformerShape, vocabulary_size: int, *, is_tied: bool, tokens: int | None = None
) -> Operator:
    """Return the output block: normalisation, a product with the vocabulary, softmax and loss.

    A tied head uses the word vectors of the embedding, read once per pass, so it only has the parameters of the
    normalisation. In a pipeline, the last server's copy of the word vectors is not counted. If split over words, two
    sums per token are reduced.
    """
    hidden, token_count = shape.hidden, shape.tokens if tokens is None else tokens
    weight_count = vocabulary_size * hidden
    return make_operator(
        "head",
        "head",
        flops=2.0 * token_count * weight_count,
        parameter_count=(0 if is_tied else weight_count) + (hidden if shape.is_llama_style else 2 * hidden),
        output_count=token_count,
        moved_count=token_count * (hidden + 3 * vocabulary_size),
        precision=shape.precision,
        ways=("data", "tensor"),
        forward_reduce_count=2 * token_count,
        backward_reduce_count=token_count * hidden,
        shared_count=weight_count if is_tied else 0,
        most_shards=vocabulary_size,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bert(Parameters):
    """Parameters of BERT.

    `inner` is the width of the MLP, 4 x `hidden` as published. A `vocabulary` of 0 omits embedding and pooler.
    `decoder` = 1 gives each layer a decoder besides its encoder, as in the program of the TopoOpt artifact.
    """

    layers: int = 12
    sequence: int = 64
    hidden: int = 1024
    heads: int = 16
    inner: int = 4096
    vocabulary: int = 30522
    positions: int = 512
    decoder: int = 0
    batch_per_device: int = 16


def build_bert(name: str, parameters: Bert, nodes: int, origin: str) -> Workload:
    """Return BERT: a normalised embedding of words, positions and two segments, encoders, and the pooler.

    Raises `WorkloadError` for sequences longer than the positions.
    """
    builder = WorkloadBuilder()
    shape = TransformerShape(
        parameters.sequence,
        parameters.hidden,
        parameters.heads,
        parameters.heads,
        parameters.inner,
        SINGLE_PRECISION,
    )
    inputs: tuple[int, ...] = ()
    if parameters.vocabulary:
        if parameters.sequence > parameters.positions:
            raise WorkloadError(
                f"{name}: sequences of {parameters.sequence} tokens, but vectors for {parameters.positions} "
                f"positions: set positions to at least {parameters.sequence}"
            )
        inputs = (
            builder.add_operator(
                make_embedding(
                    shape,
                    parameters.vocabulary,
                    parameters.positions,
                    extra_parameters=(2 + 2) * parameters.hidden,
                )
            ),
        )
    decoder_inputs = inputs
    for layer in range(parameters.layers):
        encoder = (make_attention(f"attention{layer}", shape), make_mlp(f"mlp{layer}", shape))
        inputs = builder.add_chain(encoder, *inputs)
        if parameters.decoder:
            self_attended = builder.add_chain([make_attention(f"self{layer}", shape)], *decoder_inputs)
            cross_attended = builder.add_chain(
                [make_attention(f"cross{layer}", shape)], *self_attended, *inputs
            )
            decoder_inputs = builder.add_chain([make_mlp(f"decoder_mlp{layer}", shape)], *cross_attended)
    if parameters.vocabulary:
        head_index = shape.hidden
        builder.add_operator(
            make_operator(
                "pooler",
                "dense",
                flops=2.0 * head_index * head_index,
                parameter_count=head_index * head_index + head_index,
                output_count=head_index,
                moved_count=2 * head_index,
                precision=shape.precision,
            ),
            *(decoder_inputs if parameters.decoder else inputs),
        )
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpt(Parameters):
    """Parameters of GPT: a decoder-only transformer with learned positions and a tied head, in half precision."""

    layers: int = 12
    sequence: int = 2048
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 50257
    batch_per_device: int = 1


#: Layers, width and heads by size (Brown et al. 2020, table 2.1).
GPT_SIZES = {
    size: {"layers": layers, "hidden": hidden, "heads": heads}
    for size, layers, hidden, heads in (
        ("125m", 12, 768, 12),
        ("350m", 24, 1024, 16),
        ("760m", 24, 1536, 16),
        ("1.3b", 24, 2048, 16),
        ("2.7b", 32, 2560, 32),
        ("6.7b", 32, 4096, 32),
        ("13b", 40, 5120, 40),
        ("175b", 96, 12288, 96),
    )
}


def build_gpt(name: str, parameters: Gpt, nodes: int, origin: str) -> Workload:
    """Return GPT: an embedding, layers of attention and MLP, and a head."""
    builder = WorkloadBuilder()
    shape = TransformerShape(
        parameters.sequence,
        parameters.hidden,
        parameters.heads,
        parameters.heads,
        4 * parameters.hidden,
        MIXED_PRECISION,
    )
    embedding_index = builder.add_operator(make_embedding(shape, parameters.vocabulary, parameters.sequence))
    blocks = (
        block
        for layer in range(parameters.layers)
        for block in (make_attention(f"attention{layer}", shape), make_mlp(f"mlp{layer}", shape))
    )
    builder.add_operator(
        make_head(shape, parameters.vocabulary, is_tied=True), *builder.add_chain(blocks, embedding_index)
    )
    return builder.build_workload(name, parameters.count_samples(nodes), origin=origin)
