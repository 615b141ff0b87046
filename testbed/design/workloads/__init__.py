"""Workloads: the operators of a job, their strategies on servers, and the resulting traffic.

| module | contents |
|---|---|
| `model` | operators and workloads |
| `sharding` | shardings, strategies, and the resharding between operators that are sharded differently |
| `strategies` | default strategies, pipelines, the shardings of a search, checks of strategies |
| `roofline` | computing times and memory |
| `profile` | measured computing times |
| `choice` | a workload by name and settings; memory savings in training: ZeRO, recomputation |
| `iteration` | a workload under a strategy as a task graph; its traffic, also without the graph, and as a picture |
| `gates` | traffic that the gates of a mixture of experts send, with skew |
| `mig` | instances of a device |
| `catalogue` | DLRM, CANDLE Uno, BERT, NCF, ResNet50, VGG16, GPT, mixture of experts, serving |
| `imports` | workloads from ONNX files, torch modules and traces |

Importing this package needs only numpy.
"""
