"""The harness for users own tests."""
