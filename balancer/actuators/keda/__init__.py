"""KEDA's external scaler: a gRPC server that answers from memory."""
