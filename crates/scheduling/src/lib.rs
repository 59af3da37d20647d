//! Which endpoint takes a request: endpoints, signals, prefix affinity, pick
