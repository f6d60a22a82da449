"""A second opinion on the engine: plain Python, written from the design text and not from the C code.

It keeps the books of calls and routes in the simplest way that can be read beside the text, runs beside the real engine on random
streams of operations, and complains at the first answer that differs.
"""
