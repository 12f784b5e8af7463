"""Packing of partitions into members: arrays in, arrays out, pure."""
