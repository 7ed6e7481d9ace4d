"""The applications that Millrace is for, each one file that a person can read in five minutes."""
