"""``runai.reporter`` is not part of OpenEDT; the import raises an error that names alternatives."""

raise ImportError(
    "runai.reporter is not part of OpenEDT's runai. Instead: inside a job, the metrics of train() and of a "
    "callbacks.LoggerCallback are on the job's page and in the API; for a Prometheus push gateway, "
    "prometheus_client.push_to_gateway",
    name="runai.reporter",
)
