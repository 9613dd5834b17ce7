"""Masks of detectors: pasted into pictures, encoded as run lengths, and cut out as targets."""
