"""The systems under test: one file each, with a SYSTEM class."""
