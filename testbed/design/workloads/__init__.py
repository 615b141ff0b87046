"""Workloads: operators of a job, their strategies on servers, and the resulting traffic.

| module | contents |
|---|---|
| `model` | operators and workloads |
| `sharding` | shardings, strategies, and the resharding between operators that are sharded differently |
| `strategies` | default strategies, pipelines, legal shardings, checks of strategies |
| `roofline` | computing times and memory |
| `profile` | measured computing times |
| `choice` | a workload by name and settings, with options that save memory: ZeRO, recomputation |
| `checkpoint` | checkpoints in a task graph, and the storage hosts that receive them |
| `iteration` | a workload with a strategy as a task graph, and its traffic |
| `gates` | traffic to the experts of a mixture, with skew |
| `mig` | instances of a device (MIG) |
| `catalogue` | DLRM, CANDLE Uno, BERT, NCF, ResNet50, VGG16, GPT, mixture of experts, serving |
| `imports` | workloads from ONNX files, torch modules and traces |

Importing this package needs only numpy.
"""
