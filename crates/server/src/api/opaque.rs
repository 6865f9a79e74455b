//! Reasoning in fields that clients return without reading them: `encrypted_content` of OpenAI, `signature`
//! of Anthropic. It is encoded, not encrypted: the text is not secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Start of each encoded text, by which the server recognizes its own.
const PREFIX: &[u8] = b"tabla:";

/// Encodes a text. The result is never empty.
pub(crate) fn encode(text: &str) -> String {
    STANDARD.encode([PREFIX, text.as_bytes()].concat())
}

/// Decodes a text of [`encode`]. Returns `None` if another server encoded it.
pub(crate) fn decode(opaque: &str) -> Option<String> {
    let bytes = STANDARD.decode(opaque).ok()?;
    String::from_utf8(bytes.strip_prefix(PREFIX)?.to_vec()).ok()
}
