"""ONNX, out."""
