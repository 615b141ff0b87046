"""Workloads: what a job computes, how it may be spread over servers, and what it then sends.

| module | what for |
|---|---|
| `model` | operators and workloads |
| `layout` | where an operator runs; strategies |
| `roofline` | how long computing takes, and what fits into memory |
| `moves` | what passes between operators that are laid out differently |
| `iteration` | a workload under a strategy as a task graph |
| `traffic` | what an iteration sends, and the demand made of it |
| `heat_map` | the same as a picture |
| `catalogue` | DLRM, CANDLE Uno, BERT, NCF, ResNet50, VGG16, GPT, mixture of experts, serving |
| `imports` | workloads from ONNX files and torch modules |

Importing this needs numpy alone.
"""
