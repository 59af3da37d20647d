//! What is printed once, to be read and copied.

/// What `ridge up` started.
#[derive(Debug, Clone, Default)]
pub struct UpInfo {
    /// Where clients send requests, without a slash at the end.
    pub gateway_url: String,
    /// The admin page, if there is one.
    pub admin_url: Option<String>,
    /// A model to name in the examples, if one is known.
    pub model: Option<String>,
    /// What was found or started, one sentence a line.
    pub notes: Vec<String>,
}

/// The text above the live lines: a curl line, the lines for the OpenAI SDK, the admin page.
///
/// Model names come from engines, so they are quoted for the shell, JSON and Python alike.
pub fn greeting(info: &UpInfo) -> String {
    let gateway = printable(&info.gateway_url);
    let model = serde_json::Value::from(printable(info.model.as_deref().unwrap_or("MODEL"))).to_string();
    let mut text = String::from("\n");
    for note in &info.notes {
        text += &format!("  {}\n", printable(note));
    }
    if !info.notes.is_empty() {
        text.push('\n');
    }
    let body =
        format!(r#"{{"model":{model},"stream":true,"messages":[{{"role":"user","content":"Hello"}}]}}"#);
    text += &format!(
        "  curl {gateway}/v1/chat/completions -H 'content-type: application/json' \\\n    -d '{}'\n\n",
        body.replace('\'', r"'\''")
    );
    text += &format!(
        "  from openai import OpenAI\n  \
         client = OpenAI(base_url=\"{gateway}/v1\", api_key=\"none\")\n  \
         answer = client.chat.completions.create(model={model}, messages=[{{\"role\": \"user\", \"content\": \"Hello\"}}])\n  \
         print(answer.choices[0].message.content)\n\n"
    );
    if let Some(admin) = &info.admin_url {
        text += &format!("  admin page  {}\n\n", printable(admin));
    }
    text
}

/// Without control characters: a name from elsewhere must not move the cursor or colour the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_model(model: &str) -> String {
        greeting(&UpInfo {
            gateway_url: "http://127.0.0.1:8080".into(),
            model: Some(model.into()),
            ..UpInfo::default()
        })
    }

    #[test]
    fn a_model_name_cannot_leave_its_quotes() {
        let text = with_model("a'; rm -rf ~ #\"\\");
        assert!(text.contains(r#""model":"a'\''; rm -rf ~ #\"\\","#), "{text}");
        assert!(text.contains(r#"create(model="a'; rm -rf ~ #\"\\","#), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = with_model("a\x1b]0;x\x07\u{9b}31m");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
