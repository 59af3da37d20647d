//! How each proxy is told to live with engines that fail: what a careful operator would set, and the same for all.
//!
//! An engine that has not begun to answer after a second is given up; connection errors, resets, time-outs, 500, 502 and
//! 503 are tried on another engine; the least loaded engine is preferred.

/// Lines of nginx's configuration.
pub struct Nginx {
    /// In `upstream`.
    pub balance: &'static str,
    /// After each `server`.
    pub server: &'static str,
    /// In `location`.
    pub location: &'static str,
}

/// Without faults: as it comes.
pub const NGINX_PLAIN: Nginx = Nginx { balance: "", server: "", location: "      proxy_read_timeout 1h;\n" };

/// The zone lets its workers share what they know of engines.
pub const NGINX: Nginx = Nginx {
    balance: "    zone engines 256k;\n    least_conn;\n",
    server: " max_fails=1 fail_timeout=10s",
    location: "      proxy_connect_timeout 1s;
      proxy_read_timeout 1s;
      proxy_next_upstream error timeout http_500 http_502 http_503 non_idempotent;
      proxy_next_upstream_tries 3;
",
};

/// Lines of Envoy's configuration.
pub struct Envoy {
    /// The cluster's policy.
    pub balance: &'static str,
    /// In the route.
    pub route: &'static str,
    /// In the cluster.
    pub cluster: &'static str,
}

/// Without faults: as it comes.
pub const ENVOY_PLAIN: Envoy =
    Envoy { balance: "ROUND_ROBIN", route: "", cluster: "    connect_timeout: 5s\n" };

/// Outlier detection, and retries on another host within a budget; `5xx` holds 500, resets and time-outs.
pub const ENVOY: Envoy = Envoy {
    balance: "LEAST_REQUEST",
    route: ", retry_policy: { retry_on: \"5xx,reset,connect-failure,refused-stream\", num_retries: 2, \
            per_try_idle_timeout: 1s, host_selection_retry_max_attempts: 5, retry_host_predicate: [{ \
            name: envoy.retry_host_predicates.previous_hosts, typed_config: { '@type': \
            type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate } }] }",
    cluster: "    connect_timeout: 1s
    outlier_detection:
      consecutive_5xx: 5
      consecutive_gateway_failure: 3
      enforcing_consecutive_gateway_failure: 100
      interval: 1s
      base_ejection_time: 10s
      max_ejection_percent: 50
    circuit_breakers:
      thresholds:
      - retry_budget: { budget_percent: { value: 20 }, min_retry_concurrency: 10 }
",
};

/// Retries, its circuit breaker and health checks are on by themselves; it has no time-out but that of the whole request.
pub const SMG: &str =
    " --request-timeout-secs 1 --health-check-interval-secs 1 --health-check-timeout-secs 1";

/// Arguments of `ridge serve`.
pub const RIDGE: &str = "";
