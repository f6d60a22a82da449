"""Tests of the gateway in a real nginx."""
