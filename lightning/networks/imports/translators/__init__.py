"""Operations of ONNX as nodes of a network; `operation_list` names them all."""
