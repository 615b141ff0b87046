"""Translation of transformer layers of `torch.nn`. `torch.fx` does not trace into them."""

# ruff: noqa: ARG001 - signatures are torch's own, behind the scope

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lightning.networks.imports.torch import functions
from lightning.networks.imports.torch.scope import Scope, Tensor


def attend_multihead(
    scope: Scope,
    layer: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, None]:
    """Add attention with photonic projections and digital scores. Return the output, and None in place of weights."""
    if not layer.batch_first:
        raise scope.make_error("has the batch axis second", "Build it with batch_first=True")
    is_unsupported = layer.in_proj_weight is None or layer.bias_k is not None or layer.add_zero_attn
    if is_unsupported or key_padding_mask is not None:
        raise scope.make_error(
            "has key widths, biases or padding masks of its own", "Use plain self-attention"
        )
    head_count, head_width = layer.num_heads, layer.head_dim
    biases = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
    projected_heads = []
    projections = zip("qkv", (query, key, value), layer.in_proj_weight.chunk(3), biases, strict=True)
    for projection_name, x, weight, bias in projections:
        projection_scope = replace(scope, name=f"{scope.name}.{projection_name}_proj")
        projected_rows = functions.linear(projection_scope, x, weight, bias)
        split_heads = functions.reshape(
            replace(projection_scope, name=f"{projection_scope.name}/heads"),
            projected_rows,
            *scope.get_shape(x)[:-1],
            head_count,
            head_width,
        )
        projected_heads.append(
            functions.transpose(
                replace(projection_scope, name=f"{projection_scope.name}/turned"), split_heads, 1, 2
            )
        )
    mask = _convert_mask(scope, attn_mask, is_causal=is_causal)
    attention = functions.attention(scope, projected_heads[0], projected_heads[1], projected_heads[2], mask)
    merged_heads = functions.transpose(replace(scope, name=f"{scope.name}/together"), attention, 1, 2)
    flat_heads = functions.reshape(
        replace(scope, name=f"{scope.name}/flat"), merged_heads, *scope.get_shape(query)
    )
    output_scope = replace(scope, name=f"{scope.name}.out_proj")
    return functions.linear(output_scope, flat_heads, layer.out_proj.weight, layer.out_proj.bias), None


def _convert_mask(scope: Scope, mask: Any, *, is_causal: bool) -> Any:
    """Return the mask for `functions.attention`. Invert a boolean mask, because torch.nn masks positions with true."""
    if mask is None and is_causal:
        raise scope.make_error("is causal but has no mask", "Give attn_mask")
    is_boolean = mask is not None and str(mask.dtype) == "torch.bool"
    return ~mask if is_boolean else mask


def encode_layer(
    scope: Scope,
    layer: Any,
    x: Tensor,
    src_mask: Any = None,
    src_key_padding_mask: Any = None,
    is_causal: bool = False,
) -> Tensor:
    """Add attention and two linear layers, each with a residual connection and a normalisation before or after."""

    def name_part(part: str) -> Scope:
        return replace(scope, name=f"{scope.name}.{part}")

    def norm(part: str, value: Tensor) -> Tensor:
        layer_norm = getattr(layer, part)
        return functions.layer_norm(
            name_part(part),
            value,
            layer_norm.normalized_shape,
            layer_norm.weight,
            layer_norm.bias,
            layer_norm.eps,
        )

    def attend(value: Tensor) -> Tensor:
        inputs = (value, value, value, src_key_padding_mask, False, src_mask)
        return attend_multihead(name_part("self_attn"), layer.self_attn, *inputs)[0]

    def feed_forward(value: Tensor) -> Tensor:
        hidden = functions.linear(name_part("linear1"), value, layer.linear1.weight, layer.linear1.bias)
        activated = _activate(name_part("activation"), layer.activation, hidden)
        return functions.linear(name_part("linear2"), activated, layer.linear2.weight, layer.linear2.bias)

    for norm_name, add_block in (("norm1", attend), ("norm2", feed_forward)):
        block_input = norm(norm_name, x) if layer.norm_first else x
        x = name_part(f"{norm_name}/around").add("Add", [x, add_block(block_input)])
        x = x if layer.norm_first else norm(norm_name, x)
    return x


def _activate(scope: Scope, activation: Any, x: Tensor) -> Tensor:
    name = getattr(activation, "__name__", type(activation).__name__).lower()
    if name not in {"relu", "gelu"}:
        raise scope.make_error(f"has the activation {name}", "Use relu or gelu")
    activated: Tensor = functions.TRANSLATOR_BY_FUNCTION[name](scope, x)
    return activated


def encode_stack(scope: Scope, stack: Any, x: Tensor, *settings: Any, **keyword_settings: Any) -> Tensor:
    """Add the layers in order, and the final normalisation if there is one."""
    for number, layer in enumerate(stack.layers):
        x = encode_layer(
            replace(scope, name=f"{scope.name}.layers.{number}"), layer, x, *settings, **keyword_settings
        )
    norm = stack.norm
    if norm is None:
        return x
    norm_scope = replace(scope, name=f"{scope.name}.norm")
    return functions.layer_norm(norm_scope, x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


ATTENTION_TRANSLATORS: Mapping[str, Callable[..., Any]] = {
    "MultiheadAttention": attend_multihead,
    "TransformerEncoderLayer": encode_layer,
    "TransformerEncoder": encode_stack,
}
