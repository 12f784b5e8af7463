"""The whole loop on real Kafka, on one machine, in under four minutes: ``make demo-kafka``."""
