"""Checkpoints as versions of Millrace left them, one of each operator: by them later ones prove that they can read."""
