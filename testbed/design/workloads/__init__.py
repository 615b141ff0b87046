"""Workloads: what a job computes, how it may be spread over servers, and what it then sends.

| module | what for |
|---|---|
| `model` | operators and workloads |
| `sharding` | where an operator runs; what a strategy is; what passes between operators that are laid out differently |
| `strategies` | the default strategies, pipelines, what a search may try, whether a strategy fits |
| `roofline` | how long computing takes, and what fits into memory |
| `profile` | measured times instead |
| `choice` | a workload as people name it; less memory in training: ZeRO, outputs computed again |
| `iteration` | a workload under a strategy as a task graph; what it sends, also without the graph, and as a picture |
| `mig` | instances of a device |
| `catalogue` | DLRM, CANDLE Uno, BERT, NCF, ResNet50, VGG16, GPT, mixture of experts, serving |
| `imports` | workloads from ONNX files and torch modules |

Importing this needs numpy alone.
"""
