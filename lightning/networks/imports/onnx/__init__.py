"""ONNX files: read, ordered, constants folded."""
