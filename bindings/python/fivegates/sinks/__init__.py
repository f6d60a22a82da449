"""Where ledger lines can go besides a file. Import the module you need:

rotating: files of limited size or age, shared by processes.
log: the standard library's logging.
otel: OpenTelemetry spans and a duration metric.
prometheus: counters by prometheus-client.

Several at once: fivegates.ledger.Tee. What each does when it fails:
fivegates.ledger.Sink.
"""
