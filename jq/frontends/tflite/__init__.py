"""TFLite files as models: their graphs become ONNX with Q/DQ, which is read as ONNX is."""
