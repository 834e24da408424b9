#!/usr/bin/env python3
"""Writes the Grafana dashboard to the file that is named, or to kube-fanout.json beside this script.

deploy/alerts/check.sh installs grafana-foundation-sdk, compares the committed file with what this writes, and checks the queries.
"""

import itertools
import pathlib
import sys

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

# Which replicas are shown. `.*` for all also matches targets without a namespace.
TARGET = 'job=~"$job", namespace=~"$namespace", instance=~"$instance"'
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT = 7


def series(metric, more=""):
    """The series of a metric of the chosen replicas."""
    return f"{metric}{{{', '.join(filter(None, [TARGET, more]))}}}"


def total(metric, by="", more=""):
    return f"sum{by and f' by ({by})'} ({series('kube_fanout_' + metric, more)})"


def rate(metric, by="", more=""):
    return f"sum{by and f' by ({by})'} (rate({series('kube_fanout_' + metric, more)}[$__rate_interval]))"


def increase(metric, by, more=""):
    return f"sum by ({by}) (increase({series('kube_fanout_' + metric, more)}[$__rate_interval]))"


def quantile(q, metric, by="", more=""):
    return f"histogram_quantile({q}, {rate(metric + '_bucket', ', '.join(filter(None, ['le', by])), more)})"


def with_targets(panel, queries):
    for index, (legend, expr) in enumerate(queries):
        query = prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(chr(ord("A") + index))
        panel = panel.with_target(query)
    return panel.datasource(DATASOURCE)


def number(title, expr, unit="short", description="", alarm=None):
    """One number; it becomes red from `alarm` on, or below 1 if `alarm` is 0."""
    panel = stat.Panel().title(title).unit(unit).description(description)
    if alarm is not None:
        steps = [("red", None), ("green", 1)] if alarm == 0 else [("green", None), ("red", alarm)]
        thresholds = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE)
        panel = panel.thresholds(thresholds.steps([models.Threshold(color=color, value=value) for color, value in steps]))
    reduce = common.ReduceDataOptions().calcs(["lastNotNull"])
    return with_targets(panel.reduce_options(reduce), [("", expr)]).span(4).height(4)


def chart(title, queries, unit="short", description="", stacked=False, span=8):
    panel = timeseries.Panel().title(title).unit(unit).description(description).min(0).line_width(1)
    panel = panel.legend(
        common.VizLegendOptions()
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
        .show_legend(True)
    ).tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL)).fill_opacity(30)
    return with_targets(panel, queries).span(span).height(HEIGHT)


OVERVIEW = [
    number("Replicas", f"count({series('kube_fanout_build_info')})"),
    number("Open watches", total("longrunning_requests")),
    number("Connections", total("connections")),
    number(
        "Caches connected upstream",
        f"avg({series('kube_fanout_upstream_connected')})",
        "percentunit",
        "Share of the caches whose watch upstream is open.",
        alarm=0,
    ),
    number(
        "Oldest cache",
        f"max({series('kube_fanout_cache_age_seconds')})",
        "s",
        "Time since upstream last proved that a cache is complete. Up to a minute on quiet resources, 68 s without bookmarks.",
        alarm=90,
    ),
    number(
        "Deliveries for each event",
        f"{rate('watch_events_total')} / {rate('upstream_events_received_total')}",
        "none",
        "Events handed to clients, for each one that was received from the API server.",
    ),
    chart("Open watches", [("{{resource}}", total("longrunning_requests", "resource"))]),
    chart("Events delivered", [("{{resource}}", rate("watch_events_total", "resource"))], "ops"),
    chart(
        "Bytes",
        [
            ("watches", rate("watch_bytes_total")),
            ("forwarded to clients", rate("passthrough_received_bytes_total")),
            ("received for caches", rate("upstream_bytes_received_total")),
        ],
        "Bps",
        "What clients get, beside what the API server sends for it.",
    ),
]

CACHES = [
    chart("Objects", [("{{resource}} {{encoding}}", total("cache_objects", "resource, encoding"))]),
    chart("Bytes of objects", [("{{resource}} {{encoding}}", total("cache_snapshot_bytes", "resource, encoding"))], "bytes"),
    chart(
        "State",
        [("{{resource}} {{encoding}}: {{state}}", f"{total('cache_state', 'resource, encoding, state')} > 0")],
        description="Number of replicas by state. All states but ready, not_offered and filling mean that requests are forwarded.",
    ),
    chart("Events in the history", [("{{resource}} {{encoding}}", total("cache_ring_events", "resource, encoding"))]),
    chart("Bytes of the history", [("{{resource}} {{encoding}}", total("cache_ring_bytes", "resource, encoding"))], "bytes"),
    chart(
        "How far the history reaches back",
        [("{{resource}} {{encoding}}", f"min by (resource, encoding) ({series('kube_fanout_cache_history_seconds')})")],
        "s",
        "How long a client may be away and still resume its watch. Short on a new cache and after its first event.",
    ),
    chart(
        "Age",
        [("{{resource}} {{encoding}}", f"max by (resource, encoding) ({series('kube_fanout_cache_age_seconds')})")],
        "s",
        "Time since upstream last proved that the cache is complete.",
    ),
    chart("Given up, filled", [
        ("given up: {{resource}} {{reason}}", f"{increase('cache_given_up_total', 'resource, reason')} > 0"),
        ("filled: {{resource}}", f"{increase('cache_initializations_total', 'resource')} > 0"),
    ]),
    chart("Clients that share a frame", [
        ("{{resource}}", f"{rate('watch_events_total', 'resource')} / {rate('cache_frames_encoded_total', 'resource')}"),
    ], description="Events delivered, for each event that was laid out."),
]

CLIENTS = [
    chart("Delivery", [
        ("p50", quantile(0.5, "watch_events_lag_seconds")),
        ("p99", quantile(0.99, "watch_events_lag_seconds")),
        ("p99 {{resource}}", quantile(0.99, "watch_events_lag_seconds", "resource")),
    ], "s", "From an event's arrival from upstream until it is handed to a client."),
    chart("Age of events at delivery", [
        ("p50 {{resource}}", quantile(0.5, "watch_events_age_seconds", "resource")),
        ("p99 {{resource}}", quantile(0.99, "watch_events_age_seconds", "resource")),
    ], "s", "From the time that an object bears until its event is handed to a client. Of a few events; whole seconds but for Leases."),
    chart("Watches cut for lag", [("{{resource}}", increase("lagged_total", "resource"))]),
    chart("Ends of watches", [("{{reason}}", rate("stream_ends_total", "reason"))], "ops"),
    chart("Refused with 429", [("{{reason}}", rate("admission_refusals_total", "reason"))], "reqps"),
    chart("No free permit", [("{{place}}: {{bound}}", f"{rate('shortages_total', 'place, bound')} > 0")], "reqps",
          "By bound: the share of a user, that of an address, or the total. Empty if there was no shortage."),
    chart("Requests by code", [("{{verb}} {{code}}", rate("request_total", "verb, code"))], "reqps"),
    chart("Connections", [
        ("accepted", rate("connections_accepted_total")),
        ("failed: {{reason}}", rate("connections_failed_total", "reason")),
    ], "ops"),
    chart("Cancelled, stalled, invalid", [
        ("cancelled", rate("request_aborts_total")),
        ("stalled", rate("streams_stalled_total")),
        ("{{reason}}", rate("bad_requests_total", "reason")),
    ], "ops"),
    chart("Catch-ups", [("{{resource}}", rate("catch_ups_total", "resource"))], "ops",
          "Watches that got the latest state of what changed, instead of 410 (--catch-up-resources)."),
]

LISTS = [
    chart("Lists", [("{{resource}} {{code}}", rate("request_total", "resource, code", 'verb="LIST"'))], "reqps"),
    chart("Duration", [
        ("p50 {{resource}}", quantile(0.5, "request_duration_seconds", "resource", 'verb="LIST"')),
        ("p99 {{resource}}", quantile(0.99, "request_duration_seconds", "resource", 'verb="LIST"')),
    ], "s", "From a list's request to its last byte, from memory."),
    chart("Objects sent", [("{{resource}}", rate("list_objects_total", "resource"))], "ops"),
    chart("Running and waiting", [
        ("running", total("admission_lists_running")),
        ("waiting", total("admission_lists_waiting")),
        ("slow", total("admission_lists_slow")),
    ], span=12),
    chart("Compressed blocks", [
        ("compressed", rate("list_blocks_made_total")),
        ("shared", rate("list_blocks_shared_total")),
    ], "ops", "Blocks of lists with gzip: compressed, or sent as another list had compressed them.", span=12),
]

UPSTREAM = [
    chart("Watches connected", [("{{resource}} {{encoding}}", total("upstream_connected", "resource, encoding"))],
          description="Number of replicas whose watch is open."),
    chart("Events received", [("{{resource}} {{encoding}}", rate("upstream_events_received_total", "resource, encoding"))], "ops"),
    chart("Age of events at arrival", [
        ("p50 {{resource}}", quantile(0.5, "upstream_event_age_seconds", "resource")),
        ("p99 {{resource}}", quantile(0.99, "upstream_event_age_seconds", "resource")),
        ("from the future: {{resource}}", f"{rate('upstream_future_writes_total', 'resource')} > 0"),
    ], "s", "From the time that an object bears until its event arrives. Of a few events; whole seconds but for Leases."),
    chart("Clock of the API server", [
        ("{{instance}}", f"max by (instance) ({series('kube_fanout_upstream_clock_offset_seconds')})"),
    ], "s", "How much later it is than the gateway's clock, by the Date of its answers."),
    chart("Lists", [
        ("{{resource}}", increase("upstream_lists_total", "resource")),
        ("again: {{resource}} {{reason}}", f"{increase('upstream_relists_total', 'resource, reason')} > 0"),
    ]),
    chart("Ends of watches", [("{{reason}}", rate("upstream_watch_ends_total", "reason"))], "ops"),
    chart("Frames rejected, contradictions", [
        ("rejected: {{resource}} {{reason}}", f"{increase('upstream_frames_rejected_total', 'resource, reason')} > 0"),
        ("contradiction: {{resource}} {{reason}}", f"{increase('upstream_contradictions_total', 'resource, reason')} > 0"),
    ], description="Empty if all is well."),
    chart("Objects compared with upstream", [
        ("{{resource}}", rate("drift_objects_compared_total", "resource")),
        ("pages skipped: {{resource}}", rate("drift_pages_skipped_total", "resource")),
    ], "ops"),
    chart("API servers", [("{{endpoint}} {{state}}", f"{total('upstream_endpoint_state', 'endpoint, state')} > 0")],
          description="Number of replicas by state. Only with several API servers."),
    chart("API servers in use", [
        ("{{endpoint}}", total("upstream_endpoint_active", "endpoint")),
        ("changed to {{endpoint}}", increase("upstream_endpoint_activations_total", "endpoint")),
    ], description="Number of replicas. Only with several API servers."),
    chart("Failures of API servers", [("{{endpoint}} {{reason}}", rate("upstream_endpoint_failures_total", "endpoint, reason"))], "ops",
          "Only with several API servers."),
    chart("Forwarded requests", [
        ("begun per second", rate("passthrough_requests_total")),
        ("open", total("passthrough_requests_active")),
        ("upgraded per second", rate("passthrough_upgrades_total")),
    ]),
    chart("Failed forwarded requests", [("{{reason}}", rate("passthrough_errors_total", "reason"))], "reqps"),
    chart("Watches of Tables", [
        ("{{resource}}", total("upstream_table_watches_active", "resource")),
        ("begun per second: {{resource}}", rate("upstream_table_watches_total", "resource")),
    ]),
]

# Watches and tunnels last as long as they are open.
ENDS_BY_ITSELF = 'verb!~"WATCH|CONNECT"'

ADOPTION = [
    chart("Lists and watches by rule", [("{{rule}}: {{answerer}}", rate("serving_rule_requests_total", "rule, answerer"))], "reqps",
          "By the serving rule that decided, and the side that it chose. Empty without rules.", stacked=True),
    chart("Shadow comparisons", [("{{outcome}}", rate("shadow_comparisons_total", "outcome"))], "ops",
          "What memory would have answered against what upstream answered. Empty if no rule compares."),
    chart("Shadow differences", [
        ("{{verb}} {{resource}}: {{outcome}}",
         f"{increase('shadow_comparisons_total', 'verb, resource, outcome', 'outcome!~' + chr(34) + 'equal|not_comparable' + chr(34))} > 0"),
    ], description="Empty if all is well."),
    chart("Forwarded requests by code", [("{{verb}} {{code}}", rate("forwarded_request_total", "verb, code"))], "reqps",
          "A request counts when its response is complete, a watch when it ends."),
    chart("Forwarded requests by resource", [
        ("{{verb}} {{resource}}", f"topk(20, {rate('forwarded_request_total', 'verb, resource')} > 0)"),
    ], "reqps", "The twenty that are forwarded most."),
    chart("Duration of forwarded requests", [
        ("p50 {{verb}}", quantile(0.5, "forwarded_request_duration_seconds", "verb", ENDS_BY_ITSELF)),
        ("p99 {{verb}}", quantile(0.99, "forwarded_request_duration_seconds", "verb", ENDS_BY_ITSELF)),
    ], "s", "Until the end of the response, upstream's own time included. Without watches and tunnels."),
]

MEMORY = [
    chart("Parts", [("{{part}}", total("memory_bytes", "part"))], "bytes", stacked=True, span=12),
    chart("Resident", [
        ("in use", total("memory_bytes", more='part!="free"')),
        ("resident", total("memory_resident_bytes")),
        ("bound", f"{total('memory_limit_bytes')} > 0"),
    ], "bytes", span=6),
    chart("Pressure", [
        ("{{instance}}", f"max by (instance) ({series('kube_fanout_memory_pressure')})"),
        ("steps: {{step}}", f"{increase('memory_pressure_steps_total', 'step')} > 0"),
    ], description="1: frames, 2: history, 3: admission, 4: eviction.", span=6),
]

AUTH = [
    chart("Credentials", [
        ("{{authenticator}} {{outcome}}", f"{rate('authentication_attempts_total', 'authenticator, outcome')} > 0"),
    ], "reqps", "Empty with --auth none."),
    chart("Reviews", [
        ("access: {{outcome}}", rate("authorization_reviews_total", "outcome")),
        ("token: {{outcome}}", rate("authentication_reviews_total", "outcome")),
    ], "reqps"),
    chart("Duration of reviews", [
        ("access p99", quantile(0.99, "authorization_review_duration_seconds")),
        ("token p99", quantile(0.99, "authentication_review_duration_seconds")),
    ], "s"),
    chart("Remembered answers", [
        ("access", f"{rate('authorization_cache_hits_total')} / ({rate('authorization_cache_hits_total')} + {rate('authorization_cache_misses_total')})"),
        ("token", f"{rate('authentication_token_cache_lookups_total', more='outcome=' + chr(34) + 'hit' + chr(34))}"
                  f" / {rate('authentication_token_cache_lookups_total')}"),
    ], "percentunit"),
    chart("Refused callers, revoked permissions", [
        ("refused: {{reason}}", rate("auth_refusals_total", "reason")),
        ("revoked: {{reason}}", rate("authorization_revocations_total", "reason")),
    ], "ops"),
    chart("Permissions of open streams", [
        ("held", total("authorization_leases")),
        ("checked again per second: {{outcome}}", rate("authorization_rechecks_total", "outcome")),
    ]),
    chart("Expiry", [
        ("serving certificate {{instance}}", f"({series('kube_fanout_serving_certificate_expiry_timestamp_seconds')} > 0) - time()"),
        ("upstream credential {{instance}}", f"({series('kube_fanout_upstream_credential_expiry_timestamp_seconds')} > 0) - time()"),
    ], "s", span=12),
    chart("Files read again", [("{{file}} {{outcome}}", f"{increase('file_reloads_total', 'file, outcome')} > 0")], span=12),
]

PROCESS = [
    chart("Processors", [("{{instance}}", f"rate({series('process_cpu_seconds_total')}[$__rate_interval])")]),
    chart("Open files", [
        ("{{instance}}", series("process_open_fds")),
        ("limit {{instance}}", series("process_max_fds")),
    ]),
    chart("Tasks that ended unexpectedly", [("{{task}}", increase("task_unexpected_ends_total", "task"))]),
    chart("Checkpoints", [
        ("{{resource}}", total("checkpoint_bytes", "resource")),
    ], "bytes", "Only with --state-dir."),
    chart("Written, failed and read checkpoints", [
        ("written", rate("checkpoint_writes_total")),
        ("failed", rate("checkpoint_errors_total")),
        ("read: {{outcome}}", rate("checkpoint_restores_total", "outcome")),
    ], "ops", "Only with --state-dir."),
    chart("Handovers", [
        ("taken: {{outcome}}", increase("handovers_taken_total", "outcome")),
        ("given: {{outcome}}", increase("handovers_served_total", "outcome")),
    ]),
    chart("Audit events", [
        ("{{result}}", rate("audit_events_total", "result")),
        ("write errors", rate("audit_write_errors_total")),
    ], "ops"),
    chart("Age of the process", [("{{instance}}", f"time() - {series('process_start_time_seconds')}")], "s"),
    chart("Versions", [("{{version}} {{commit}}", f"count by (version, commit) ({series('kube_fanout_build_info')})")]),
]

ROWS = [
    ("Overview", OVERVIEW),
    ("Adoption", ADOPTION),
    ("Caches", CACHES),
    ("Clients", CLIENTS),
    ("Lists", LISTS),
    ("Upstream", UPSTREAM),
    ("Memory", MEMORY),
    ("Callers", AUTH),
    ("Process", PROCESS),
]


def variable(name, label, query):
    everything = models.VariableOption(text="All", value="$__all", selected=True)
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(everything)
    )


def build():
    board = (
        dashboard.Dashboard("kube-fanout")
        .uid("kube-fanout")
        .description("Watch fan-out gateways. docs/METRICS.md describes the metrics, docs/ALERTS.md the alerts.")
        .tags(["kubernetes", "kube-fanout"])
        .readonly()
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(variable("job", "Job", "label_values(kube_fanout_build_info, job)"))
        .with_variable(variable("namespace", "Namespace", 'label_values(kube_fanout_build_info{job=~"$job"}, namespace)'))
        .with_variable(
            variable("instance", "Replica", 'label_values(kube_fanout_build_info{job=~"$job", namespace=~"$namespace"}, instance)')
        )
    )
    numbers = itertools.count(1)
    for title, panels in ROWS:
        board = board.with_row(dashboard.Row(title).id(next(numbers)))
        for panel in panels:
            board = board.with_panel(panel.id(next(numbers)))
    return board.build()


def main():
    beside = pathlib.Path(__file__).with_name("kube-fanout.json")
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else beside
    path.write_text(JSONEncoder(sort_keys=True, indent=1).encode(build()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
