"""The operators of ONNX by chapter: functions on tensors, and in `OPERATORS` the rows of the table."""
