"""The operators of ONNX Runtime that the standard does not have (domain `com.microsoft`)."""
