"""Operations of ONNX as nodes of a network; `vocabulary` names them all."""
