"""Operations of ONNX, each in one place: what it becomes in a network, and what a node of its name computes in float32.

| module | what lives there |
|---|---|
| `operation_list` | every operation by its name; `translate`, `apply`, and `run_float`, the reference |
| `elementwise`, `axes`, `shaping` | on values one by one, along axes, and that only move values |
| `products`, `windows` | matrix products; convolution and pooling |
| `builder` | a network under construction, and what an operation is made of |
"""
