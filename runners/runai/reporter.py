"""Not here: ``runai.reporter``. Room: runners."""

from runai._gone import gone

raise gone(
    "runai.reporter",
    "inside a job, the metrics of train() and of a callbacks.LoggerCallback are on the job's page and in the API; for "
    "a Prometheus push gateway, prometheus_client.push_to_gateway",
)
