"""What is counted, how it is added up over processes, and what Prometheus reads."""
