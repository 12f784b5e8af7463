"""Random fault schedules on real Kafka, and the bed on which integration tests and benchmarks run too."""
