//! Addresses to listen on.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value as Json, json};

use crate::diagnostics::Fault;
use crate::field::Value;

impl Value for SocketAddr {
    const KIND: &'static str = "an address with port";

    fn parse(text: &str) -> Result<Self, Fault> {
        text.parse().map_err(|_| {
            let rule = "an address is IP:PORT, an IPv6 address in brackets";
            let port = |text: &str| text.parse::<u16>().is_ok();
            let remedy = if port(text) {
                format!("write 127.0.0.1:{text} for this machine only, 0.0.0.0:{text} for all")
            } else if let Some(number) = text.strip_prefix("localhost:") {
                format!("write 127.0.0.1:{number}: names are not looked up here")
            } else if let Ok(ip) = text.parse::<IpAddr>() {
                format!("add the port: {}", SocketAddr::new(ip, 8080))
            } else if let Some(number) = text.strip_prefix([':', '*']) {
                let number = number.trim_start_matches(':');
                format!("write 0.0.0.0:{number} or \"[::]:{number}\" for all addresses")
            } else if text.contains("://") {
                "leave out the scheme: 127.0.0.1:8080".to_owned()
            } else {
                "write for example 127.0.0.1:8080 or \"[::1]:8080\"".to_owned()
            };
            Fault::new(rule, remedy)
        })
    }

    fn schema() -> Json {
        json!({"type": "string"})
    }
}

/// Where the admin listener is, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admin {
    /// There is none.
    Off,
    /// At this address.
    At(SocketAddr),
}

impl Admin {
    /// The address, unless it is off.
    pub fn addr(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(addr) => Some(addr),
        }
    }
}

impl Value for Admin {
    const KIND: &'static str = "an address with port, or off";

    fn parse(text: &str) -> Result<Self, Fault> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if matches!(text.to_ascii_lowercase().as_str(), "false" | "none" | "no" | "off") {
            return Err(Fault::new("an address IP:PORT, or off", "write off"));
        }
        SocketAddr::parse(text)
            .map(Self::At)
            .map_err(|fault| Fault::new(format!("{}, or off", fault.rule), fault.remedy))
    }

    fn schema() -> Json {
        json!({"type": "string"})
    }
}
