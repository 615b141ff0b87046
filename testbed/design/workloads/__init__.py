"""Workloads: what a job computes, how it may be spread over servers, and what it then sends.

| module | what for |
|---|---|
| `model` | operators and workloads |
| `sharding` | where an operator runs; what a strategy is |
| `strategies` | the usual strategies, what a search may try, whether a strategy fits |
| `roofline` | how long computing takes, and what fits into memory |
| `savings` | less memory in training: ZeRO, outputs computed again |
| `profile` | measured times instead |
| `resharding` | what passes between operators that are laid out differently |
| `pipeline` | strategies that cut a workload into stages |
| `steps` | what runs as one task, whose gradients are summed together |
| `stages` | what servers finish for a microbatch before they take up the next |
| `bundles` | which edges send together |
| `iteration` | a workload under a strategy as a task graph |
| `totals` | what an iteration sends, without the graph, corrected operator by operator |
| `traffic` | the sums, and the demand made of them |
| `heat_map` | the same as a picture |
| `catalogue` | DLRM, CANDLE Uno, BERT, NCF, ResNet50, VGG16, GPT, mixture of experts, serving |
| `imports` | workloads from ONNX files and torch modules |

Importing this needs numpy alone.
"""
