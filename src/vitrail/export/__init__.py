"""ONNX, OpenVINO and torch.export files whose answers were compared with the network they came from."""
