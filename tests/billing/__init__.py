"""Traffic with a known bill, and its exports: what tests `fivegates reconcile`."""
