//! Where upstreams come from: the config file, a watched file, DNS
