//! Description of tools for models whose chat templates do not support them.

use serde_json::Value as Json;

/// Returns the text that describes tools and the tool-call format, in the words of Hermes and Qwen.
pub(super) fn prompt(tools: &[Json]) -> String {
    let mut text = String::from(
        "# Tools\n\n\
         You may call one or more functions to assist with the user query.\n\n\
         You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
    );
    for tool in tools {
        text.push_str(&tool.to_string());
        text.push('\n');
    }
    text.push_str(
        "</tools>\n\n\
         For each function call, return a json object with function name and arguments within \
         <tool_call></tool_call> XML tags:\n<tool_call>\n\
         {\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
    );
    text
}
