"""ONNX, written and opened again."""
