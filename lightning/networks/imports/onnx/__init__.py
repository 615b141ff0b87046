"""Import of ONNX files."""
