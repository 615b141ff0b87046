"""ONNX operations. One module holds both the translation of an operation to nodes and its computation in float32.

| module | content |
|---|---|
| `operation_list` | every operation by its name; `translate`, `compute_node`, and `run_float`, the reference |
| `elementwise`, `axes`, `shaping` | operations on single values, along axes, and operations that only move values |
| `products`, `windows` | matrix products; convolution and pooling |
| `builder` | a network under construction; `Call` and `Operator` |
"""
