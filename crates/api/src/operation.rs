//! Which calls are served, and what is known of each from its method and path alone.

/// The shape that a client of this call expects errors in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `{"error":{"message","type","param","code"}}`; also spoken by vLLM's and SGLang's own calls.
    OpenAi,
    /// `{"type":"error","error":{"type","message"}}`.
    Anthropic,
    /// `{"error":"text"}`.
    Ollama,
}

/// What a request of this call carries as its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// No body is read.
    None,
    /// JSON, whatever `content-type` says.
    Json,
    /// `multipart/form-data` if `content-type` says so, else JSON.
    MultipartOrJson,
}

/// A call that the gateway knows how to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/rerank`
    Rerank,
    /// `POST /v1/score`
    Score,
    /// `POST /v1/audio/speech`
    AudioSpeech,
    /// `POST /v1/audio/transcriptions`, `/v1/audio/translations` and any other segment below `/v1/audio/`
    AudioText,
    /// `POST /v1/images/generations`
    ImageGeneration,
    /// `POST /v1/images/edits`, `/v1/images/variations` and any other segment below `/v1/images/`
    ImageEdit,
    /// Anthropic `POST /v1/messages`
    Messages,
    /// Anthropic `POST /v1/messages/count_tokens`
    CountTokens,
    /// `GET /v1/models`
    ModelList,
    /// `GET /v1/models/{id}`; an id may hold slashes
    ModelDetail,
    /// vLLM `POST /inference/v1/generate` (token ids in, token ids out)
    VllmGenerate,
    /// `POST /tokenize`
    Tokenize,
    /// `POST /detokenize`
    Detokenize,
    /// SGLang `POST /generate`
    SglangGenerate,
    /// Ollama `POST /api/chat`
    OllamaChat,
    /// Ollama `POST /api/generate`
    OllamaGenerate,
    /// Ollama `POST /api/embed`
    OllamaEmbed,
}

/// What a method and path lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// A call that is served.
    Known(Operation),
    /// The path is served, this method on it is not: answer 405 with `allow`.
    WrongMethod {
        /// The value of the `Allow` response header.
        allow: &'static str,
        /// The call that the path belongs to, for the shape of the error.
        operation: Operation,
    },
    /// Nothing is served under this path: answer 404.
    Unknown,
}

/// Finds the call for a method and a path without its query.
///
/// Paths are compared byte for byte: a doubled slash, a trailing slash or a percent-encoded letter is another
/// path, and unknown. An engine behind might read such a path as one that must stay closed.
#[must_use]
pub fn route(method: &str, path: &str) -> Routed {
    use Operation as O;
    let operation = match path {
        "/v1/chat/completions" => O::ChatCompletions,
        "/v1/completions" => O::Completions,
        "/v1/responses" => O::Responses,
        "/v1/embeddings" => O::Embeddings,
        "/v1/rerank" => O::Rerank,
        "/v1/score" => O::Score,
        "/v1/audio/speech" => O::AudioSpeech,
        "/v1/images/generations" => O::ImageGeneration,
        "/v1/messages" => O::Messages,
        "/v1/messages/count_tokens" => O::CountTokens,
        "/v1/models" => O::ModelList,
        "/inference/v1/generate" => O::VllmGenerate,
        "/tokenize" => O::Tokenize,
        "/detokenize" => O::Detokenize,
        "/generate" => O::SglangGenerate,
        "/api/chat" => O::OllamaChat,
        "/api/generate" => O::OllamaGenerate,
        "/api/embed" => O::OllamaEmbed,
        _ => match open_ended(path) {
            Some(operation) => operation,
            None => return Routed::Unknown,
        },
    };
    let allow = operation.allow();
    if allow.split(", ").any(|allowed| allowed == method) {
        Routed::Known(operation)
    } else {
        Routed::WrongMethod { allow, operation }
    }
}

/// Paths that end in something the client chooses.
fn open_ended(path: &str) -> Option<Operation> {
    if let Some(rest) = path.strip_prefix("/v1/audio/") {
        return is_plain_segment(rest).then_some(Operation::AudioText);
    }
    if let Some(rest) = path.strip_prefix("/v1/images/") {
        return is_plain_segment(rest).then_some(Operation::ImageEdit);
    }
    // Model names have slashes ("org/name"), sent as they are or as %2F. Dot segments would let an HTTP
    // library between here and the engine walk to another path.
    let id = path.strip_prefix("/v1/models/")?;
    let dotted =
        |part: &str| matches!(part.replace("%2e", ".").replace("%2E", ".").as_str(), "." | ".." | "");
    (!id.split('/').any(dotted)).then_some(Operation::ModelDetail)
}

fn is_plain_segment(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

impl Operation {
    /// Every call, for tables of counters and tests.
    pub const ALL: [Operation; 21] = [
        Operation::ChatCompletions,
        Operation::Completions,
        Operation::Responses,
        Operation::Embeddings,
        Operation::Rerank,
        Operation::Score,
        Operation::AudioSpeech,
        Operation::AudioText,
        Operation::ImageGeneration,
        Operation::ImageEdit,
        Operation::Messages,
        Operation::CountTokens,
        Operation::ModelList,
        Operation::ModelDetail,
        Operation::VllmGenerate,
        Operation::Tokenize,
        Operation::Detokenize,
        Operation::SglangGenerate,
        Operation::OllamaChat,
        Operation::OllamaGenerate,
        Operation::OllamaEmbed,
    ];

    /// A short name for logs and metric labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::ChatCompletions => "chat_completions",
            Operation::Completions => "completions",
            Operation::Responses => "responses",
            Operation::Embeddings => "embeddings",
            Operation::Rerank => "rerank",
            Operation::Score => "score",
            Operation::AudioSpeech => "audio_speech",
            Operation::AudioText => "audio_text",
            Operation::ImageGeneration => "image_generation",
            Operation::ImageEdit => "image_edit",
            Operation::Messages => "messages",
            Operation::CountTokens => "count_tokens",
            Operation::ModelList => "model_list",
            Operation::ModelDetail => "model_detail",
            Operation::VllmGenerate => "vllm_generate",
            Operation::Tokenize => "tokenize",
            Operation::Detokenize => "detokenize",
            Operation::SglangGenerate => "sglang_generate",
            Operation::OllamaChat => "ollama_chat",
            Operation::OllamaGenerate => "ollama_generate",
            Operation::OllamaEmbed => "ollama_embed",
        }
    }

    /// The shape of this call's errors.
    #[must_use]
    pub fn dialect(self) -> Dialect {
        match self {
            Operation::Messages | Operation::CountTokens => Dialect::Anthropic,
            Operation::OllamaChat | Operation::OllamaGenerate | Operation::OllamaEmbed => Dialect::Ollama,
            _ => Dialect::OpenAi,
        }
    }

    /// The value of the `Allow` header for this call's path.
    #[must_use]
    pub fn allow(self) -> &'static str {
        match self {
            Operation::ModelList | Operation::ModelDetail => "GET, HEAD",
            _ => "POST",
        }
    }

    /// Whether the call costs compute but changes nothing, so that it may be sent to another endpoint until
    /// the first byte of an answer. The body can take that back: see [`RequestFields::is_replayable`].
    ///
    /// [`RequestFields::is_replayable`]: crate::RequestFields::is_replayable
    #[must_use]
    pub fn is_inference(self) -> bool {
        !matches!(self, Operation::ModelList | Operation::ModelDetail)
    }

    /// Whether a request without a model is refused. The others are served by whatever an engine has loaded.
    #[must_use]
    pub fn model_required(self) -> bool {
        !matches!(
            self,
            Operation::Tokenize
                | Operation::Detokenize
                | Operation::VllmGenerate
                | Operation::SglangGenerate
                | Operation::Rerank
                | Operation::Score
                | Operation::ModelList
                | Operation::ModelDetail
        )
    }

    /// What the request body is.
    #[must_use]
    pub fn body_kind(self) -> BodyKind {
        match self {
            Operation::ModelList | Operation::ModelDetail => BodyKind::None,
            Operation::AudioText | Operation::ImageEdit => BodyKind::MultipartOrJson,
            _ => BodyKind::Json,
        }
    }

    /// Whether the answer is streamed when the body does not say.
    #[must_use]
    pub fn streams_by_default(self) -> bool {
        matches!(self, Operation::OllamaChat | Operation::OllamaGenerate)
    }

    /// The top-level keys that hold the prompt, in the order in which a chat template would print them.
    pub(crate) fn prompt_keys(self) -> &'static [&'static str] {
        match self {
            Operation::ChatCompletions => &["tools", "messages"],
            Operation::Completions => &["prompt", "suffix"],
            Operation::Responses => &["tools", "instructions", "input"],
            Operation::Embeddings => &["messages", "input"],
            Operation::Rerank => &["query", "documents"],
            Operation::Score => &["text_1", "text_2", "queries", "documents", "query", "items"],
            Operation::AudioSpeech => &["instructions", "input"],
            Operation::AudioText | Operation::ImageGeneration | Operation::ImageEdit => &["prompt"],
            Operation::Messages | Operation::CountTokens => &["tools", "system", "messages"],
            Operation::VllmGenerate => &["token_ids"],
            Operation::Tokenize => &["tools", "messages", "prompt", "text", "content"],
            Operation::Detokenize => &["tokens"],
            Operation::SglangGenerate => &["text", "prompt", "input_ids"],
            Operation::OllamaChat => &["tools", "messages"],
            Operation::OllamaGenerate => &["context", "system", "prompt", "suffix"],
            Operation::OllamaEmbed => &["input"],
            Operation::ModelList | Operation::ModelDetail => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_paths_and_methods() {
        assert_eq!(route("POST", "/v1/chat/completions"), Routed::Known(Operation::ChatCompletions));
        assert_eq!(route("GET", "/v1/models"), Routed::Known(Operation::ModelList));
        assert_eq!(route("HEAD", "/v1/models"), Routed::Known(Operation::ModelList));
        assert_eq!(route("GET", "/v1/models/org/name"), Routed::Known(Operation::ModelDetail));
        assert_eq!(route("POST", "/v1/audio/transcriptions"), Routed::Known(Operation::AudioText));
        assert_eq!(route("POST", "/v1/images/edits"), Routed::Known(Operation::ImageEdit));
        assert_eq!(route("POST", "/api/chat"), Routed::Known(Operation::OllamaChat));
    }

    #[test]
    fn a_served_path_with_another_method_names_the_allowed_one() {
        assert_eq!(
            route("GET", "/v1/messages"),
            Routed::WrongMethod { allow: "POST", operation: Operation::Messages }
        );
        assert!(matches!(route("DELETE", "/v1/models/m"), Routed::WrongMethod { allow: "GET, HEAD", .. }));
        // Methods are case-sensitive.
        assert!(matches!(route("post", "/v1/completions"), Routed::WrongMethod { .. }));
    }

    #[test]
    fn paths_that_only_look_served_stay_closed() {
        for path in [
            "",
            "/",
            "/v1/chat/completions/",
            "//v1/chat/completions",
            "/v1/chat%2Fcompletions",
            "/V1/chat/completions",
            "/v1/audio/",
            "/v1/audio/a/b",
            "/v1/audio/..",
            "/v1/images/%2e%2e",
            "/v1/models/",
            "/v1/models/../../sleep",
            "/v1/models/%2e%2E/load",
            "/v1/models/a//b",
            "/sleep",
            "/v1/load_lora_adapter",
            "/api/delete",
            "/collective_rpc",
        ] {
            assert_eq!(route("POST", path), Routed::Unknown, "{path}");
            assert_eq!(route("GET", path), Routed::Unknown, "{path}");
        }
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Operation::ALL.iter().map(|o| o.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Operation::ALL.len());
    }
}
