"""What operators see: logs, metrics, the status, and traces.

| module or package | what it is for |
|---|---|
| `counters` | counters and histograms of a subscription, and the fields of log lines |
| `metrics` | all metrics, and the text that Prometheus scrapes |
| `status` | the status of a sidecar as plain types |
| `logs` | structured logs to standard error |
| `tracing` | OpenTelemetry spans, if they are configured |
"""
