"""Flows that run for hours under an even load: does anything grow that should not?"""
