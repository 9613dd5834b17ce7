"""The operations: one file each, with its public functions."""
