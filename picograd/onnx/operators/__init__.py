"""ONNX operators by subject: a row of the table says what each does with Tensors."""
