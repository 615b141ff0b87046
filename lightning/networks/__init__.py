"""Trained networks as floats: what is imported, before anything is quantised.

    from lightning.networks import load_network
    network = load_network("model.onnx")     # or an .npz of weights w1, w2, ...

| module | what it is for |
|---|---|
| `network` | `Network`, `Node`, `Preprocessing` |
| `imports` | ONNX files, `torch.nn` modules, `.npz` of weights |
| `reference` | the network in float32, which everything is compared with |
"""
