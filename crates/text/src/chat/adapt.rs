//! Adapts conversations to chat templates that describe no tools or have no variables of reasoning, so
//! that nothing of a conversation is dropped without a message.

use super::template::{ChatTemplate, Conversation};
use super::time::strftime;
use super::tool_calls::{ChatFormat, fallback};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;

/// Variables of chat templates for the reasoning: whether there is any, and its effort.
const ENABLE_THINKING: &str = "enable_thinking";
const REASONING_EFFORT: &str = "reasoning_effort";

/// Variables of chat templates for the date, with its format: those of llama.cpp.
const DATES: [(&str, &str); 2] = [("date_string", "%d %b %Y"), ("datetime", "%b %d %Y")];

/// Effort that disables the reasoning.
const NO_EFFORT: &str = "none";

/// A conversation in a form that a chat template supports.
#[derive(Clone, Debug)]
pub struct AdaptedConversation<'a> {
    original: Conversation<'a>,
    messages: Cow<'a, [Json]>,
    tools: &'a [Json],
    variables: Map<String, Json>,
    /// What the template does not support and how that is handled, for a log.
    pub warnings: Vec<String>,
}

impl AdaptedConversation<'_> {
    /// Returns the input of the template.
    pub fn conversation(&self) -> Conversation<'_> {
        self.original
            .messages(&self.messages)
            .tools(self.tools)
            .variables(&self.variables)
    }
}

impl ChatTemplate {
    /// Returns a conversation in a form that the template supports, for [`render`](Self::render) and
    /// [`encode`](Self::encode).
    ///
    /// If the template describes no tools ([`ChatFormat::supports_tools`]), a system message describes
    /// them, and tool calls and their results in earlier messages are text, in the format that
    /// [`ChatFormat::detect`] then returns. Without support for system messages, the first message of
    /// the user describes the tools.
    ///
    /// `reasoning_effort` sets the variable `enable_thinking`, to false for `none`, and otherwise the
    /// variable `reasoning_effort`. Without it, `enable_thinking` is true. `date_string` and `datetime` are
    /// the date in UTC, such as `29 Nov 2026` and `Nov 29 2026`. Variables of the conversation have precedence.
    pub fn adapt<'a>(
        &self,
        conversation: &Conversation<'a>,
        reasoning_effort: Option<&str>,
    ) -> AdaptedConversation<'a> {
        let mut adapted = AdaptedConversation {
            original: *conversation,
            messages: Cow::Borrowed(conversation.messages),
            tools: conversation.tools,
            variables: conversation.variables.cloned().unwrap_or_default(),
            warnings: Vec::new(),
        };
        let format = ChatFormat::detect(self, conversation.tools);
        if !format.supports_tools() {
            if !self.source().contains("tool_calls") {
                adapted.messages = fallback::messages(adapted.messages);
            }
            if !conversation.tools.is_empty() {
                let prompt = fallback::prompt(conversation.tools);
                let role = self.instruction_role();
                prepend(adapted.messages.to_mut(), role, &prompt);
                adapted.tools = &[];
                adapted.warnings.push(format!(
                    "tools: the chat template does not describe tools, a {role} message does"
                ));
            }
        }
        if let Some(effort) = reasoning_effort {
            self.set_effort(&mut adapted, &format, effort);
        }
        self.set_defaults(&mut adapted);
        adapted
    }

    /// Sets variables that the template reads and that have no value.
    fn set_defaults(&self, adapted: &mut AdaptedConversation<'_>) {
        let now = adapted.original.now;
        let dates = DATES.map(|(name, format)| {
            // The directives are known.
            (name, strftime(now, format).unwrap_or_default().into())
        });
        let defaults = [(ENABLE_THINKING, true.into())].into_iter().chain(dates);
        for (name, value) in defaults.filter(|(name, _)| self.source().contains(name)) {
            adapted.variables.entry(name).or_insert(value);
        }
    }

    /// Returns the role of a message with instructions: some templates raise an exception for a system
    /// message or omit it.
    fn instruction_role(&self) -> &'static str {
        let text = "be brief";
        let messages = [
            json!({ "role": "system", "content": text }),
            json!({ "role": "user", "content": "hi" }),
        ];
        let rendered = self.render(&Conversation::new(&messages));
        match rendered.is_ok_and(|rendered| rendered.contains(text)) {
            true => "system",
            false => "user",
        }
    }

    /// Sets the variables of an effort.
    fn set_effort(&self, adapted: &mut AdaptedConversation<'_>, format: &ChatFormat, effort: &str) {
        let enables = effort != NO_EFFORT;
        let mut set = |name: &str, value: Json| {
            let variable = adapted.variables.entry(name);
            variable.or_insert(value);
            self.source().contains(name)
        };
        let mut is_read = set(ENABLE_THINKING, enables.into());
        if enables {
            is_read |= set(REASONING_EFFORT, effort.into());
        }
        // A template without reasoning has nothing to disable.
        if !is_read && (enables || format.reasoning_markers().is_some()) {
            adapted.warnings.push(format!(
                "reasoning_effort: {effort:?} has no effect, the chat template does not read {ENABLE_THINKING}{}",
                if enables { " or reasoning_effort" } else { "" }
            ));
        }
    }
}

/// Prepends a text to the first message if it has the role, otherwise a message before it.
fn prepend(messages: &mut Vec<Json>, role: &str, text: &str) {
    let first = messages.first_mut();
    let Some(first) = first.filter(|first| first["role"] == role) else {
        messages.insert(0, json!({ "role": role, "content": text }));
        return;
    };
    match &mut first["content"] {
        Json::Array(parts) => {
            parts.insert(0, json!({ "type": "text", "text": format!("{text}\n\n") }));
        }
        content => {
            let before = content.as_str().unwrap_or_default();
            *content = format!("{text}\n\n{before}").into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::template::TextArguments;
    use super::*;
    use crate::TemplateTokens;

    const PLAIN: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}";

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(source, TemplateTokens::default()).expect("a template")
    }

    fn rendered(source: &str, messages: &Json, tools: &[Json]) -> (String, Vec<String>) {
        let template = template(source);
        let messages = messages.as_array().expect("a list");
        let conversation = Conversation::new(messages).tools(tools);
        let adapted = template.adapt(&conversation, None);
        let text = template.render(&adapted.conversation());
        (text.expect("template renders"), adapted.warnings)
    }

    #[test]
    fn tools_are_text_where_the_template_has_none() {
        let messages = json!([
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "Weather?" },
            { "role": "assistant", "content": "Well.", "tool_calls": [
                { "function": { "name": "f", "arguments": "{\"a\": 1}" } },
                { "function": { "name": "g", "arguments": { "b": 2 } } },
                { "function": { "name": "h", "arguments": "{\"city\": \"Par" } },
            ] },
            { "role": "tool", "content": "sun" },
            { "role": "tool", "content": [{ "type": "text", "text": "rain" }] },
            { "role": "user", "content": "And now?" },
            { "role": "user", "content": "Hello?" },
        ]);
        let tools = [json!({ "name": "f" })];
        let (text, warnings) = rendered(PLAIN, &messages, &tools);
        let (prompt, rest) = text
            .split_once("\n\nBe brief.\n")
            .expect("a system message");
        assert!(prompt.starts_with("[system] # Tools\n"), "{prompt}");
        assert!(
            prompt.contains("<tools>\n{\"name\":\"f\"}\n</tools>"),
            "{prompt}"
        );
        let expected = "[user] Weather?\n[assistant] Well.\n\
            <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n\
            <tool_call>\n{\"name\": \"g\", \"arguments\": {\"b\":2}}\n</tool_call>\n\
            <tool_call>\n{\"name\": \"h\", \"arguments\": {\"city\": \"Par}\n</tool_call>\n\
            [user] <tool_response>\nsun\n</tool_response>\n<tool_response>\nrain\n</tool_response>\n\
            And now?\nHello?\n";
        assert_eq!(rest, expected);
        assert_eq!(warnings.len(), 1);
        // The calls of the history have the format of calls in the output.
        let call = expected
            .split("[user]")
            .nth(1)
            .and_then(|text| text.split("Well.\n").nth(1));
        let parsed = ChatFormat::detect(&template(PLAIN), &tools).parse("", call.expect("calls"));
        assert_eq!(parsed.tool_calls[0].arguments, "{\"a\":1}");

        // Without tools, too, nothing of the history is dropped.
        let (text, warnings) = rendered(PLAIN, &messages, &[]);
        assert_eq!(text, format!("[system] Be brief.\n{expected}"));
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn templates_with_tools_get_them() {
        let source = format!("{{{{ tools | tojson }}}}{PLAIN}{{# <tool_call> tool_calls #}}");
        let tools = [json!({ "name": "f" })];
        let messages = json!([{ "role": "tool", "content": "sun" }]);
        let (text, warnings) = rendered(&source, &messages, &tools);
        assert_eq!(text, "[{\"name\": \"f\"}][tool] sun\n");
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn tools_are_in_the_user_message_where_the_template_has_no_system_message() {
        let raising = format!(
            "{{% if messages[0].role == 'system' %}}{{{{ raise_exception('no') }}}}{{% endif %}}{PLAIN}"
        );
        let messages = json!([{ "role": "user", "content": "Hi" }]);
        let (text, warnings) = rendered(&raising, &messages, &[json!({ "name": "f" })]);
        assert!(
            text.starts_with("[user] # Tools\n") && text.ends_with("\n\nHi\n"),
            "{text}"
        );
        assert!(warnings[0].contains("a user message"), "{warnings:?}");
    }

    #[test]
    fn efforts_set_variables_or_are_reported() {
        let found = |source: &str, effort, variables: &Json| {
            let conversation = Conversation::new(&[]).variables(variables.as_object());
            let template = template(source);
            let adapted = template.adapt(&conversation, effort);
            let text = template
                .render(&adapted.conversation())
                .expect("template renders");
            (text, adapted.warnings)
        };
        let both = "{{ enable_thinking }} {{ reasoning_effort }}";
        let none = json!({});
        for (source, effort, variables, text, warnings) in [
            (both, None, &none, "True ", 0),
            (both, Some("none"), &none, "False ", 0),
            (both, Some("high"), &none, "True high", 0),
            (
                both,
                Some("none"),
                &json!({ "enable_thinking": true }),
                "True ",
                0,
            ),
            ("a", Some("high"), &none, "a", 1),
            ("a", Some("none"), &none, "a", 0),
            ("<think></think>", Some("none"), &none, "<think></think>", 1),
        ] {
            let found = found(source, effort, variables);
            assert_eq!(
                (&*found.0, found.1.len()),
                (text, warnings),
                "{source} {effort:?}"
            );
        }
    }

    #[test]
    fn templates_have_the_date() {
        let day = |variables: &Json| {
            let conversation = Conversation::new(&[])
                .variables(variables.as_object())
                .now(std::time::UNIX_EPOCH);
            let template = template("{{ date_string }}, {{ datetime }}");
            let adapted = template.adapt(&conversation, None);
            let text = template.render(&adapted.conversation());
            text.expect("template renders")
        };
        assert_eq!(day(&json!({})), "01 Jan 1970, Jan 01 1970");
        let set = json!({ "date_string": "today" });
        assert_eq!(day(&set), "today, Jan 01 1970");
    }

    /// Only templates that iterate over the arguments reject the text of a call that was cut.
    #[test]
    fn text_as_arguments_is_rendered_or_named() {
        let messages = |arguments: &str| {
            [json!({ "role": "assistant", "tool_calls": [
                { "function": { "name": "f", "arguments": arguments } }
            ] })]
        };
        let render = |source: &str, arguments: &str| {
            let messages = messages(arguments);
            template(source).render(&Conversation::new(&messages))
        };
        let call = "{% set call = messages[0].tool_calls[0].function %}";
        let cut = "{\"city\": \"Par";
        let plain = render(&format!("{call}{{{{ call.arguments }}}}"), cut);
        assert_eq!(plain.expect("template renders"), cut);
        let strict =
            format!("{call}{{% for k, v in call.arguments|items %}}{{{{ k }}}}{{% endfor %}}");
        assert_eq!(
            render(&strict, "{\"a\": 1}").expect("template renders"),
            "a"
        );
        let error = render(&strict, cut).expect_err("no object");
        assert!(
            error.message().contains("arguments of the call of \"f\""),
            "{error}"
        );
        let source = std::error::Error::source(&error);
        assert!(source.is_some_and(|source| source.is::<TextArguments>()));
        // Another error is not attributed to the arguments.
        let raising = format!("{strict}{{{{ raise_exception('no') }}}}");
        let error = render(&raising, cut).expect_err("an exception");
        assert!(std::error::Error::source(&error).is_none(), "{error}");
    }
}
