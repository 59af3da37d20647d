//! Values that are one of a few words.

use std::fmt;

use serde_json::{Value as Json, json};

use crate::diagnostics::Fault;
use crate::field::Value;
use crate::nearest::nearest;
use crate::value::name::FilePath;

fn not_one_of(text: &str, words: &[&str]) -> Fault {
    let rule = format!("one of {}", words.join(", "));
    let remedy = match nearest(text, words) {
        Some(near) => format!("write {near}"),
        None => format!("write for example {}", words[0]),
    };
    Fault::new(rule, remedy)
}

macro_rules! choices {
    ($(
        $(#[doc = $doc:literal])*
        pub enum $name:ident, $kind:literal {
            $( $(#[doc = $word_doc:literal])* $variant:ident = $word:literal, )*
        }
    )*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $( $(#[doc = $word_doc])* $variant, )* }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word that stands for it in a file.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Value for $name {
            const KIND: &'static str = $kind;

            fn parse(text: &str) -> Result<Self, Fault> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(not_one_of(text, &[$($word),*])),
                }
            }

            fn schema() -> Json {
                json!({"enum": [$($word),*]})
            }

            fn kind() -> String {
                [$($word),*].join(" \\| ").replace("\\|", "|")
            }
        }
    )*};
}

choices! {
    /// Which phases of a request an upstream serves.
    pub enum Role, "a role" {
        /// Prefill and decode.
        Both = "both",
        /// Prefill only.
        Prefill = "prefill",
        /// Decode only.
        Decode = "decode",
    }

    /// The program that serves at an upstream.
    pub enum EngineKind, "an engine" {
        /// Found out by asking.
        Auto = "auto",
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
        /// TensorRT-LLM.
        Trtllm = "trtllm",
        /// Triton Inference Server.
        Triton = "triton",
        /// llama.cpp.
        Llamacpp = "llamacpp",
        /// Ollama.
        Ollama = "ollama",
        /// Text Generation Inference.
        Tgi = "tgi",
        /// Another ridge.
        Ridge = "ridge",
    }

    /// How an upstream is spoken to.
    pub enum Protocol, "a protocol" {
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2 without TLS, known beforehand.
        H2c = "h2c",
    }

    /// Which records a DNS name is looked up for.
    pub enum DnsType, "a record type" {
        /// Addresses, both A and AAAA.
        A = "a",
        /// SRV: names, ports, weights and priorities.
        Srv = "srv",
    }

    /// A family of addresses.
    pub enum Family, "an address family" {
        /// IPv4 and IPv6.
        Any = "any",
        /// IPv4 alone.
        Ipv4 = "ipv4",
        /// IPv6 alone.
        Ipv6 = "ipv6",
    }

    /// An HTTP method.
    pub enum Method, "an HTTP method" {
        /// GET.
        Get = "GET",
        /// POST.
        Post = "POST",
        /// PUT.
        Put = "PUT",
        /// PATCH.
        Patch = "PATCH",
        /// DELETE.
        Delete = "DELETE",
        /// HEAD.
        Head = "HEAD",
        /// OPTIONS.
        Options = "OPTIONS",
    }
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Nowhere.
    Off,
    /// A file, appended to.
    File(FilePath),
}

impl Value for AccessLogTarget {
    const KIND: &'static str = "stdout, stderr, off or a path";

    fn parse(text: &str) -> Result<Self, Fault> {
        match text {
            "stdout" => Ok(Self::Stdout),
            "stderr" => Ok(Self::Stderr),
            "off" => Ok(Self::Off),
            // A bare word is a misspelt one sooner than a file's name.
            path if path.contains('/') => FilePath::parse(path).map(Self::File),
            _ => {
                let near = nearest(text, &["stdout", "stderr", "off"]);
                Err(Fault::new(
                    "one of stdout, stderr, off, or a path with a slash in it",
                    near.map_or(format!("write ./{text} for a file of that name"), |near| {
                        format!("write {near}")
                    }),
                ))
            }
        }
    }

    fn schema() -> Json {
        json!({"type": "string", "anyOf": [{"enum": ["stdout", "stderr", "off"]}, {"pattern": "/"}]})
    }
}
