"""ONNX operations, each in one place: its translation to nodes, and the float32 computation of its node.

| module | content |
|---|---|
| `operation_list` | every operation by its name; `translate`, `compute_node`, and `run_float`, the reference |
| `elementwise`, `axes`, `shaping` | operations on single values, along axes, and those that only move values |
| `products`, `windows` | matrix products; convolution and pooling |
| `builder` | a network under construction; `Call` and `Operator` |
"""
