//! Headers of Harmony, the format of gpt-oss: an output is a sequence of messages, and the header of each
//! one names its channel and its recipient.
//!
//! `<|start|>assistant to=RECIPIENT<|channel|>CHANNEL to=RECIPIENT <|constrain|>TYPE<|message|>`, in which
//! each part may be missing and the type may have no marker. The prompt ends with the first
//! `<|start|>assistant`. Text follows, up to `<|end|>`; `<|call|>` and `<|return|>` end the generation.

/// Marker before the role.
const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
/// Marker before the type of the text.
const CONSTRAIN: &str = "<|constrain|>";
/// Marker between a header and its text.
const TEXT: &str = "<|message|>";
const RECIPIENT: &str = "to=";
/// Recipients that are not tools.
const READERS: &[&str] = &["", "all", "assistant", "user"];
/// Namespace of the tools of a conversation.
const NAMESPACE: &str = "functions.";
/// Maximum length of a header in bytes. Tool names have at most 64.
const HEADER_BYTES_MAX: usize = 512;

/// Markers that end a message.
pub(super) const ENDS: &[&str] = &["<|end|>", "<|call|>", "<|return|>"];
/// Markers at which the text of a message ends: models omit the end of a message now and then.
pub(super) const BOUNDARIES: &[&str] = &[ENDS[0], ENDS[1], ENDS[2], START, CHANNEL];
/// Start of a header after another message.
pub(super) const NEXT: &str = "<|start|>assistant";
/// Headers of content; the first is the most frequent.
pub(super) const CONTENT: &[&str] = &[
    "<|channel|>final<|message|>",
    "<|channel|>final <|constrain|>json<|message|>",
    "<|channel|>final json<|message|>",
];
/// All markers.
pub(super) const MARKERS: &[&str] = &[START, CHANNEL, CONSTRAIN, TEXT, ENDS[0], ENDS[1], ENDS[2]];

/// Channel of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// `analysis`
    Reasoning,
    /// `final`, and `commentary`: what the model says before it calls a tool.
    Content,
}

/// What a text begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Perhaps a header: more text is needed.
    Incomplete,
    /// Not a header.
    Other,
    Complete {
        channel: Channel,
        /// Index of the name of the tool that the message calls.
        recipient: Option<usize>,
        /// Index of the text.
        end: usize,
    },
}

/// Reads the header at the start of a text.
pub(super) fn header(text: &str) -> Header {
    const PARTS: &[&str] = &[TEXT, START, CHANNEL, CONSTRAIN, RECIPIENT];
    let parts = || PARTS.iter().chain(ENDS);
    let mut channel = None;
    let mut recipient = None;
    let mut rest = text;
    while text.len() - rest.len() <= HEADER_BYTES_MAX {
        rest = rest.trim_start();
        let part = parts().find(|part| rest.starts_with(**part)).copied();
        if let Some(last) = part.filter(|part| *part == TEXT || ENDS.contains(part)) {
            return Header::Complete {
                channel: channel.unwrap_or(Channel::Content),
                // A message may end before its text.
                recipient: recipient.filter(|_| last == TEXT),
                end: text.len() - rest.len() + last.len(),
            };
        }
        if part.is_none() && parts().any(|part| part.starts_with(rest)) {
            return Header::Incomplete;
        }
        // Only the type of the text has no marker. It follows the channel.
        if part.is_none() && channel.is_none() {
            return Header::Other;
        }
        let after = &rest[part.map_or(0, str::len)..];
        let Some(length) = after.find(|c: char| c.is_whitespace() || c == '<') else {
            return match text.len() <= HEADER_BYTES_MAX {
                true => Header::Incomplete,
                false => Header::Other,
            };
        };
        let (word, next) = after.split_at(length);
        match part {
            Some(CHANNEL) if word == "analysis" => channel = Some(Channel::Reasoning),
            Some(CHANNEL) => channel = Some(Channel::Content),
            Some(RECIPIENT) if !READERS.contains(&word) => {
                recipient = Some(text.len() - after.len());
            }
            // A marker that is not part of a header.
            None if word.is_empty() => return Header::Other,
            _ => {}
        }
        rest = next;
    }
    Header::Other
}

/// Splits the text from the recipient of a message on: the name of the tool, and its arguments.
pub(super) fn call(text: &str) -> Option<(&str, &str)> {
    let (header, arguments) = text.split_once(TEXT)?;
    let name = header
        .split(|c: char| c.is_whitespace() || c == '<')
        .next()?;
    Some((name.strip_prefix(NAMESPACE).unwrap_or(name), arguments))
}

/// Returns the Lark expression of the header from the name of a tool on. `marker` returns the expression of
/// a text with markers.
pub(super) fn after_recipient(marker: impl Fn(&str) -> String) -> String {
    let [channel, constrain, text] = [CHANNEL, CONSTRAIN, TEXT].map(marker);
    format!(
        "({channel} (\"commentary\" | \"analysis\"))? (\" \"? {constrain} \"json\" | \" json\")? {text}"
    )
}

/// Returns whether a prompt ends within the text of a message of the assistant.
pub(super) fn is_open(prompt: &str) -> bool {
    let message = prompt.rsplit_once(START);
    message.is_some_and(|(_, message)| message.contains(TEXT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, channel: Channel, recipient: Option<&str>) {
        let Header::Complete {
            channel: found,
            recipient: at,
            end,
        } = header(&format!("{text}x"))
        else {
            panic!("{text:?}: {:?}", header(text));
        };
        assert_eq!((found, end), (channel, text.len()), "{text:?}");
        let name = at.map(|at| call(&text[at..]).expect("a call").0);
        assert_eq!(name, recipient, "{text:?}");
        // Every part of it may become a header.
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert_eq!(header(&text[..at]), Header::Incomplete, "{:?}", &text[..at]);
        }
    }

    #[test]
    fn reads_channels_and_recipients() {
        check("<|channel|>analysis<|message|>", Channel::Reasoning, None);
        check(
            "<|start|>assistant<|channel|>final<|message|>",
            Channel::Content,
            None,
        );
        check("<|channel|>commentary<|message|>", Channel::Content, None);
        check("<|message|>", Channel::Content, None);
        check(
            "<|channel|>commentary to=assistant<|channel|>analysis<|message|>",
            Channel::Reasoning,
            None,
        );
        check("<|channel|>analysis<|end|>", Channel::Reasoning, None);
        check(
            "<|channel|>commentary to=functions.f<|call|>",
            Channel::Content,
            None,
        );
        for header in [
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
            "<|channel|>commentary to=functions.f<|constrain|>json<|message|>",
            "<|channel|>commentary to=functions.f json<|message|>",
            "<|channel|>commentary to=f<|message|>",
            " to=functions.f<|channel|>commentary json<|message|>",
            "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>",
        ] {
            check(header, Channel::Content, Some("f"));
        }
        check(
            "<|channel|>analysis to=python code<|message|>",
            Channel::Reasoning,
            Some("python"),
        );
    }

    #[test]
    fn other_text_is_not_a_header() {
        for text in ["Hello", " total", "to x", "<b>", "<|start|>a b<|message|>"] {
            assert_eq!(header(text), Header::Other, "{text:?}");
        }
        assert_eq!(
            header(&format!("<|channel|>{}", "a".repeat(600))),
            Header::Other
        );
        assert_eq!(
            header(&format!("<|channel|>{}", "a ".repeat(600))),
            Header::Other
        );
    }

    #[test]
    fn prompts_end_in_a_header_or_in_a_text() {
        assert!(!is_open(
            "<|start|>user<|message|>Hi<|end|><|start|>assistant"
        ));
        assert!(is_open(
            "<|end|><|start|>assistant<|channel|>final<|message|>It is"
        ));
        assert!(!is_open(""));
    }
}
