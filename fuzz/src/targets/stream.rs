//! Streamed text: characters that pieces divide, and stop strings, compared with a search in the whole text.

use super::choices::Choices;
use tabla::text::{StopStrings, Utf8Stream};

/// Parts of texts and stop strings that overlap.
const PARTS: [&[u8]; 10] = [
    b"a",
    b"b",
    "\u{df}".as_bytes(),
    b"\xc3",
    b"\x9f",
    "\u{1f600}".as_bytes(),
    b"\xf0\x9f",
    b"\xff",
    b"ab",
    b"\n",
];

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let stops: Vec<String> = (0..choices.below(4)).map(|_| stop(&mut choices)).collect();
    let (mut stream, mut search) = (Utf8Stream::new(8), StopStrings::new(&stops));
    let (mut bytes, mut text, mut released) = (Vec::new(), String::new(), String::new());
    while !choices.is_empty() {
        let mut piece = Vec::new();
        for _ in 0..choices.below(4) {
            match choices.below(PARTS.len() + 1) {
                at if at < PARTS.len() => piece.extend(PARTS[at]),
                _ => piece.push(choices.byte()),
            }
        }
        bytes.extend(&piece);
        let new = stream.push(&piece);
        text.push_str(new);
        search.push(new);
        released.push_str(search.text());
        check_released(&released, &text, &stops, &search);
        if search.is_stopped() {
            // A longer stop string that begins earlier may end later.
            return;
        }
    }
    let rest = stream.flush();
    text.push_str(rest);
    assert_eq!(text, String::from_utf8_lossy(&bytes));
    released.push_str(search.flush(rest));
    let whole = first_stop(&text, &stops).map_or(&*text, |(at, _)| &text[..at]);
    assert_eq!(released, whole, "{stops:?}");
}

fn stop(choices: &mut Choices<'_>) -> String {
    let parts = ["a", "b", "\u{df}", "\u{1f600}", "\u{fffd}", "\n"];
    (0..choices.below(5))
        .map(|_| *choices.pick(&parts))
        .collect()
}

/// Returns the place and the index of the first stop string in a text, the first of the list if several begin there.
fn first_stop(text: &str, stops: &[String]) -> Option<(usize, usize)> {
    let stops = stops
        .iter()
        .enumerate()
        .filter(|(_, stop)| !stop.is_empty());
    stops
        .filter_map(|(index, stop)| Some((text.find(stop.as_str())?, index)))
        .min()
}

/// Checks that everything is released but the longest end that may become a stop string.
fn check_released(released: &str, text: &str, stops: &[String], search: &StopStrings) {
    let found = first_stop(text, stops);
    assert_eq!(
        search.found(),
        found.map(|(_, index)| stops[index].as_str()),
        "{stops:?} in {text:?}"
    );
    let expected = match found {
        Some((at, _)) => at,
        None => {
            let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            let is_start = |at: &usize| {
                stops
                    .iter()
                    .any(|stop| stop.starts_with(&text[*at..]) && *at < text.len())
            };
            ends.find(is_start).unwrap_or(text.len())
        }
    };
    assert_eq!(released, &text[..expected], "{stops:?} in {text:?}");
}
