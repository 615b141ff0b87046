"""From a trained network to integers for light: quantised, tiled, and as an `fpga.Program`.

    from lightning.compiler import compile_network, load_model
    model = compile_network(network, samples, Options(...))     # `samples`: raw inputs, for ranges
    model.save("model.lng"); model = load_model("model.lng")

| module | what it is for |
|---|---|
| `model` | `CompiledModel`, `PhotonicLayer`, `Geometry` |
| `hardware` | `Hardware`: lanes, wavelengths, cores |
"""
